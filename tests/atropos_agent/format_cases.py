"""What tests of formats share: tools, calls of them, and what must be read of a reply."""

from atropos_agent.formats import load_format

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "state": {"type": "string"}, "unit": {"enum": ["celsius", "f"]}},
        },
    },
}
AREA = {
    "type": "function",
    "function": {
        "name": "calculate_area",
        "parameters": {
            "type": "object",
            "properties": {
                "shape": {"type": "string"},
                "dimensions": {"type": "object"},
                "precision": {"type": "integer"},
                "exact": {"type": "boolean"},
                "factor": {"type": "number"},
                "label": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            },
        },
    },
}

NOTE = {
    "text": {"type": "string"},
    "n": {"type": "integer"},
    "x": {"type": "number"},
    "sure": {"type": "boolean"},
    "tags": {"type": "array"},
    "at": {"type": "object"},
    "word": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "rows": {"anyOf": [{"anyOf": [{"type": "null"}, {"type": "array", "items": {}}]}, {"type": "null"}]},
    "either": {"type": ["integer", "string"]},
    "pick": {"enum": ["7", 8]},
    "free": {},
    "area": {"$ref": "#/$defs/Area"},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", **parameters}}}
    for name, parameters in {
        "note": {"properties": NOTE, "$defs": {"Area": {"type": "object"}}},
        "list-all": {"properties": {}},
        "now": {"properties": {}},
    }.items()
]


def called(arguments="{}"):
    return f'{{"name": "note", "arguments": {arguments}}}'


def note(**arguments):
    return "note", arguments


ONE, TEXT = note(), note(text="Oslo")
OSLO, TWICE = '{"text": "Oslo"}', '{"n": 1, "n": 2}'
NOW = ("now", {})

NO_JSON = [('{"x": 1, "x": 2}', "same key twice"), ('{"x": NaN}', "NaN"), ('{"x": "a\nb"}', "as \\n")]
"""Arguments that are no strict JSON, and what is said of them."""


def assert_read(name, text, arguments, content):
    """The reply is well-formed, as inference servers read it."""
    reply = load_format(name).with_tools([WEATHER, AREA]).parse(text)
    assert repr([call.arguments for call in reply.calls]) == repr(arguments), "True is no 1"
    assert not reply.problems
    assert reply.content == content


def assert_refused(name, text, expected):
    """The reply holds one malformed call, of which this is said, also where inference servers repair it."""
    tool_format = load_format(name).with_tools([WEATHER, AREA])
    reply = tool_format.parse(text)
    assert not reply.calls
    assert len(reply.problems) == 1, reply.problems
    assert expected in reply.problems[0]
    assert reply.problems[0] in tool_format.correction(reply.problems)


def assert_only_b_runs(name, text):
    """The reply holds a malformed call, and one of `b` that is well-formed."""
    reply = load_format(name).parse(text)
    assert [call.name for call in reply.calls] == ["b"]
    assert len(reply.problems) == 1
    assert not reply.orderly
