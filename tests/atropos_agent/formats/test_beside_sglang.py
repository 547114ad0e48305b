"""What SGLang's parsers for the same models make of a reply, and what ours do: alike where it is well-formed.

The facts are those of the cases that SGLang's own tests of its parsers document, for whole replies. What its parsers
return was seen by running those of SGLang 0.5.23 on the replies of this file; GLM has two of them, for 4.5 and for 4.7.
"""

import json

import pytest
from format_cases import NOW, ONE, OSLO, TEXT, TOOLS, TWICE, called, note

from atropos_agent.formats import load_format


def hermes(name="note", arguments="{}"):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def xml(fields, name="note"):
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in fields.items())
    return f"<tool_call>\n<function={name}>\n{written}</function>\n</tool_call>"


def glm45(fields, name="note"):
    pairs = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in fields.items())
    return f"<tool_call>{name}\n{pairs}</tool_call>"


def glm47(fields, name="note"):
    return glm45(fields, name).replace(">\n", ">").replace(f"{name}\n", name)


def llama(name="note", arguments="{}", key="parameters"):
    return f'{{"name": "{name}", "{key}": {arguments}}}'


def mistral(*arguments):
    return f"[TOOL_CALLS] [{', '.join(map(called, arguments))}]"


def section(*calls):
    return f"<｜tool▁calls▁begin｜>{''.join(calls)}{SECTION_END}"


def v3(name="note", arguments="{}", kind="function"):
    return f"<｜tool▁call▁begin｜>{kind}<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>"


def v31(name="note", arguments="{}"):
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"


def kimi(*calls):
    one = "<|tool_call_begin|>{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
    return f"<|tool_calls_section_begin|>{''.join(one.format(*call) for call in calls)}<|tool_calls_section_end|>"


def harmony(to="functions.note", arguments="{}", behind=" <|constrain|>json", end="<|call|>"):
    return f"<|start|>assistant<|channel|>commentary to={to}{behind}<|message|>{arguments}{end}"


SECTION_END = "<｜tool▁calls▁end｜>"

ALIKE = [
    # Hermes, and Qwen2.5 and Qwen3, whose parser wants the line breaks
    ("hermes", hermes(arguments=OSLO), [TEXT], ""),
    ("hermes", '<tool_call>{"name": "now", "arguments": {}}</tool_call>', [NOW], ""),
    ("hermes", f"{hermes(arguments=OSLO)}\n{hermes('now')}", [TEXT, NOW], ""),
    ("hermes", f"I look it up.\n{hermes()}", [ONE], "I look it up."),
    ("hermes", '<tool_call>\n  {"name": "now", "arguments": {}}  \n</tool_call>', [NOW], ""),
    ("hermes", hermes(arguments='{"text": "挪威", "n": 2}'), [note(text="挪威", n=2)], ""),
    ("hermes", hermes(arguments='{"text": "</tool_call>"}'), [note(text="</tool_call>")], ""),
    ("hermes", "It rains.", [], "It rains."),
    # Qwen3-Coder
    ("qwen_coder", "No tool is needed.", [], "No tool is needed."),
    ("qwen_coder", f"I note it.\n\n{xml({'text': 'Oslo'})}", [TEXT], "I note it."),
    ("qwen_coder", xml({"text": "Oslo"}).replace("\n", ""), [TEXT], ""),
    ("qwen_coder", f"{xml({'sure': 'True'})}\n{xml({}, 'now')}", [note(sure=True), NOW], ""),
    ("qwen_coder", xml({"n": 3, "x": -1.5}), [note(n=3, x=-1.5)], ""),
    ("qwen_coder", xml({"x": " 1.25e3 "}), [note(x=1250.0)], ""),
    ("qwen_coder", xml({"n": 9007199254740993}), [note(n=9007199254740993)], ""),
    ("qwen_coder", xml({"text": 9007199254740993}), [note(text="9007199254740993")], ""),
    ("qwen_coder", xml({"tags": '[\n  {"a": "b"},\n  1\n]'}), [note(tags=[{"a": "b"}, 1])], ""),
    ("qwen_coder", xml({"rows": '["a"]'}), [note(rows=["a"])], ""),
    ("qwen_coder", xml({"rows": "[true, null]"}), [note(rows=[True, None])], ""),
    ("qwen_coder", xml({"rows": "null"}), [note(rows=None)], ""),
    ("qwen_coder", xml({"word": "null"}), [note(word=None)], ""),
    ("qwen_coder", xml({"text": ""}), [note(text="")], ""),
    ("qwen_coder", xml({"text": 'it\'s "so" <b>big</b>'}), [note(text='it\'s "so" <b>big</b>')], ""),
    ("qwen_coder", xml({"text": "<a>\n</parameters>"}), [note(text="<a>\n</parameters>")], ""),
    ("qwen_coder", xml({"text": "  two\n\nlines "}), [note(text="  two\n\nlines ")], ""),
    ("qwen_coder", xml({"pick": "7"}), [note(pick="7")], ""),
    ("qwen_coder", xml({"free": '{"a": 1}', "other": "5"}), [note(free='{"a": 1}', other="5")], ""),
    # GLM 4.5 and 4.6
    ("glm", glm45({"text": "Oslo"}), [TEXT], ""),
    ("glm", f"{glm45({'text': 'Oslo'})}\n{glm45({'n': 2})}", [TEXT, note(n=2)], ""),
    ("glm", f"I look. {glm45({})}", [ONE], "I look."),
    ("glm", glm45({"text": "12"}), [note(text="12")], ""),
    ("glm", glm45({"text": "C:\\Users\\t"}), [note(text="C:\\Users\\t")], ""),
    ("glm", glm45({"text": "    if x:"}), [note(text="    if x:")], ""),
    ("glm", glm45({"tags": '[{"a": "C:\\\\t \\\\n"}]'}), [note(tags=[{"a": "C:\\t \\n"}])], ""),
    ("glm", glm45({" n ": 2}), [note(n=2)], ""),
    # GLM 4.7 and 5
    ("glm", glm47({"text": "Oslo", "n": 2}), [note(text="Oslo", n=2)], ""),
    ("glm", glm47({"n": 1}) + glm47({"n": 2}), [note(n=1), note(n=2)], ""),
    ("glm", glm47({}, "now"), [NOW], ""),
    ("glm", f"First.{glm47({}, 'now')}Then.", [NOW], "First.Then."),
    ("glm", glm47({"text": ""}), [note(text="")], ""),
    ("glm", glm47({"text": "echo 'a & b'"}), [note(text="echo 'a & b'")], ""),
    ("glm", glm47({"text": "67.89"}), [note(text="67.89")], ""),
    ("glm", glm47({"text": "null", "word": "null"}), [note(text="null", word=None)], ""),
    ("glm", glm47({"text": '{ "a" : true }'}), [note(text='{ "a" : true }')], ""),
    ("glm", glm47({"at": '{"a": {"b": {}}}', "tags": "[]"}), [note(at={"a": {"b": {}}}, tags=[])], ""),
    ("glm", glm47({"x": "1e10", "n": "-42"}), [note(x=1e10, n=-42)], ""),
    ("glm", glm47({"x": 0, "n": "5.0"}), [note(x=0, n=5.0)], ""),
    ("glm", glm47({"either": "auto"}), [note(either="auto")], ""),
    ("glm", glm47({"either": 7}), [note(either=7)], ""),
    ("glm", glm47({"either": '"7"'}), [note(either="7")], ""),
    ("glm", glm47({"word": '"null"'}), [note(word="null")], ""),
    ("glm", glm47({"either": "true"}), [note(either="true")], ""),
    ("glm", glm47({"pick": 7}), [note(pick="7")], ""),
    ("glm", glm47({"pick": 8}), [note(pick=8)], ""),
    ("glm", glm47({"free": "123_456"}), [note(free="123_456")], ""),
    ("glm", glm47({"free": '{"a": false}'}), [note(free={"a": False})], ""),
    ("glm", glm47({"other": "5", "more": "five"}), [note(other=5, more="five")], ""),
    ("glm", glm47({"area": '{"a": 1}'}), [note(area={"a": 1})], ""),
    # Llama 3
    ("llama_json", llama(arguments=OSLO), [TEXT], ""),
    ("llama_json", llama(arguments=OSLO, key="arguments"), [TEXT], ""),
    ("llama_json", f"<|python_tag|>{llama('now')}", [NOW], ""),
    ("llama_json", f"I look. <|python_tag|>{llama()}", [ONE], "I look."),
    ("llama_json", f"<|python_tag|>{llama()};{llama('now')}", [ONE, NOW], ""),
    ("llama_json", f"{llama()}; {llama('now')}", [ONE, NOW], ""),
    ("llama_json", "It rains.", [], "It rains."),
    # Mistral
    ("mistral", mistral(OSLO), [TEXT], ""),
    ("mistral", mistral(OSLO, "{}"), [TEXT, ONE], ""),
    ("mistral", f"I look: {mistral('{}')}", [ONE], "I look:"),
    ("mistral", mistral('{"at": {"b": true, "c": ["d"]}}'), [note(at={"b": True, "c": ["d"]})], ""),
    ("mistral", mistral('{"text": "```[a] - [b]```"}'), [note(text="```[a] - [b]```")], ""),
    ("mistral", f"{mistral('{}')} Done.", [ONE], "Done."),
    ("mistral", "It rains.", [], "It rains."),
    ("mistral_args", f"[TOOL_CALLS]note[ARGS]{OSLO}", [TEXT], ""),
    ("mistral_args", "I look. [TOOL_CALLS]now[ARGS]{}", [NOW], "I look."),
    ("mistral_args", "[TOOL_CALLS]now[ARGS]{}[TOOL_CALLS] note [ARGS] {}", [NOW, ONE], ""),
    ("mistral_args", '[TOOL_CALLS]note[ARGS]{"text": "[ARGS]{}"}', [note(text="[ARGS]{}")], ""),
    # DeepSeek V3 and R1, and V3.1
    ("deepseek_v3", section(v3(arguments=OSLO)), [TEXT], ""),
    ("deepseek_v3", section(v3(arguments=OSLO), "\n", v3("now")), [TEXT, NOW], ""),
    ("deepseek_v3", section(v3(arguments=OSLO), v3("now")), [TEXT, NOW], ""),
    ("deepseek_v3", f"I look.{section(v3())}", [ONE], "I look."),
    ("deepseek_v3", "It rains.", [], "It rains."),
    ("deepseek_v31", section(v31(arguments=OSLO), v31("now")), [TEXT, NOW], ""),
    ("deepseek_v31", f"I look.\n{section(v31())}", [ONE], "I look."),
    # Kimi K2
    ("kimi", kimi(("functions.note:0", OSLO)), [TEXT], ""),
    ("kimi", kimi(("functions.note:0", OSLO), ("functions.now:1", "{}")), [TEXT, NOW], ""),
    ("kimi", kimi(("functions.note:5", "{}"), ("functions.now:6", "{}")), [ONE, NOW], ""),
    ("kimi", kimi(("now:0", "{}")), [NOW], ""),
    ("kimi", kimi(("functions.list-all:0", "{}")), [("list-all", {})], ""),
    ("kimi", f"I look.{kimi(('functions.now:0', '{}'))}", [NOW], "I look."),
    ("kimi", kimi(("now:0", "{}")) + kimi(("note:1", "{}")), [NOW, ONE], ""),
    ("kimi", kimi(("note:0", '{"text": "<|tool_call_end|>"}')), [note(text="<|tool_call_end|>")], ""),
    ("kimi", "It rains.", [], "It rains."),
    # gpt-oss
    ("harmony", harmony(arguments=OSLO), [TEXT], ""),
    ("harmony", harmony(behind="<|constrain|>json"), [ONE], ""),
    ("harmony", harmony() + harmony("functions.now"), [ONE, NOW], ""),
    ("harmony", "<|channel|>analysis<|message|>Hm.<|end|>" + harmony(arguments='{\n "n": 1\n}'), [note(n=1)], ""),
    ("harmony", f"<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>{harmony()}", [ONE], "I look."),
    ("harmony", "It rains.", [], "It rains."),
]
"""Format, reply, the calls in it, its content."""

REPAIRED = [
    ("an unclosed call runs", "hermes", hermes().removesuffix("</tool_call>"), [ONE], "not closed"),
    ("missing arguments are none", "hermes", '<tool_call>\n{"name": "now"}\n</tool_call>', [NOW], '"arguments"'),
    ("parameters are arguments", "hermes", hermes().replace("arguments", "parameters"), [ONE], '"arguments"'),
    ("a list is several calls", "hermes", f"<tool_call>\n[{called()}]\n</tool_call>", [ONE], "JSON object"),
    ("the last of two keys counts", "hermes", hermes(arguments=TWICE), [note(n=2)], "same key"),
    ("NaN is a number", "hermes", hermes(arguments='{"x": NaN}'), [note(x=float("nan"))], "NaN"),
    ("1e999 is infinite", "hermes", hermes(arguments='{"x": 1e999}'), [note(x=float("inf"))], "too large"),
    ("a call in thinking runs", "hermes", f"<think>{hermes()}</think>", [ONE], "inside <think>"),
    ("an unclosed call runs", "qwen_coder", xml({}).removesuffix("</tool_call>"), [ONE], "not closed"),
    (
        "an unclosed value ends",
        "qwen_coder",
        "<tool_call>\n<function=note>\n<parameter=text>\nOslo",
        [TEXT],
        "not closed",
    ),
    (
        "an unclosed argument ends at the next",
        "qwen_coder",
        xml({"text": "Oslo", "n": 3}).replace("</parameter>\n<p", "<p"),
        [note(text="Oslo", n=3)],
        "'text' is not closed",
    ),
    (
        "a drifted closing tag is text",
        "qwen_coder",
        xml({"text": "Oslo", "n": 3}).replace("</parameter>\n<p", "</parameter1>\n<p"),
        [note(text="Oslo\n</parameter1>", n=3)],
        "'text' is not closed",
    ),
    (
        "two functions in a call",
        "qwen_coder",
        xml({}).replace("</f", "</function>\n<function=now>\n</f"),
        [ONE, NOW],
        "not closed",
    ),
    ("what is no number is text", "qwen_coder", xml({"n": "three"}), [note(n="three")], "not integer"),
    ("a number of another type is text", "qwen_coder", xml({"n": "1.5"}), [note(n="1.5")], "must be integer"),
    ("a number of Python's", "qwen_coder", xml({"n": "1_000"}), [note(n=1000)], "not integer"),
    ("null for any type", "qwen_coder", xml({"n": "null"}), [note(n=None)], "must be integer"),
    ("what is no boolean is false", "qwen_coder", xml({"sure": "yes"}), [note(sure=False)], "not boolean"),
    ("a boolean in capitals", "qwen_coder", xml({"sure": "TRUE"}), [note(sure=True)], "not boolean"),
    ("Python's literals are JSON", "qwen_coder", xml({"tags": "['a']"}), [note(tags=["a"])], "not array"),
    ("an object of another type", "qwen_coder", xml({"at": "[1]"}), [note(at=[1])], "must be object"),
    (
        "the last of two arguments counts",
        "qwen_coder",
        xml({"n": 1}).replace("</f", "<parameter=n>2</parameter></f"),
        [note(n=2)],
        "twice",
    ),
    ("a quoted number is one", "glm", glm45({"x": '"42"'}), [note(x=42)], "must be integer or number"),
    ("what is no number is text", "glm", glm45({"x": "12ab"}), [note(x="12ab")], "not integer or number"),
    ("Python's literals are JSON", "glm", glm47({"at": "{'a': '\\d'}"}), [note(at={"a": "\\d"})], "not object"),
    ("escaped JSON is unescaped", "glm", glm47({"tags": r"[\"a\"]"}), [note(tags=["a"])], "not array"),
    ("escaped line breaks are skipped", "glm", glm45({"n": 2}).replace("\n", r"\n"), [note(n=2)], "no <arg_value>"),
    (
        "the last of two arguments counts",
        "glm",
        glm47({"n": 1}).replace("</t", "<arg_key>n</arg_key><arg_value>2</arg_value></t"),
        [note(n=2)],
        "twice",
    ),
    ("text after a call is content", "llama_json", f"{llama()} Done.", [ONE], "nothing else"),
    (
        "what is broken is skipped",
        "llama_json",
        f'{{"name": "note", "parameters": {{{llama()}',
        [ONE],
        "not valid JSON",
    ),
    (
        "Python's literals are JSON",
        "llama_json",
        "<|python_tag|>{'name': 'now', 'parameters': {}}",
        [NOW],
        "not valid JSON",
    ),
    ("a line break tells calls apart", "llama_json", f"{llama()}\n{llama()}", [ONE, ONE], "nothing else"),
    ("a last semicolon is skipped", "llama_json", f"{llama()};", [ONE], "not valid JSON"),
    ("missing arguments are none", "llama_json", '{"name": "now"}', [NOW], '"parameters"'),
    (
        "any id is skipped",
        "mistral",
        '[TOOL_CALLS] [{"name": "now", "arguments": {}, "id": "1"}]',
        [NOW],
        "nine letters",
    ),
    ("missing arguments are none", "mistral", '[TOOL_CALLS] [{"name": "now"}]', [NOW], '"arguments"'),
    ("arguments that are no object", "mistral_args", "[TOOL_CALLS]note[ARGS][1]", [("note", [1])], "JSON object"),
    ("the older form", "mistral_args", mistral("{}"), [ONE], "tool's name"),
    ("an unclosed section runs", "deepseek_v3", section(v3()).removesuffix(SECTION_END), [ONE], "not closed"),
    ("a call of any kind", "deepseek_v3", section(v3(kind="tool")), [ONE], "must begin with function"),
    ("arguments that are no object", "deepseek_v3", section(v3(arguments="[1]")), [("note", [1])], "JSON object"),
    ("an unclosed section runs", "deepseek_v31", section(v31()).removesuffix(SECTION_END), [ONE], "not closed"),
    ("the last of two keys counts", "deepseek_v31", section(v31(arguments=TWICE)), [note(n=2)], "same key"),
    (
        "an unclosed section runs",
        "kimi",
        kimi(("note:0", "{}")).removesuffix("<|tool_calls_section_end|>"),
        [ONE],
        "not closed",
    ),
    ("a call ends thinking", "kimi", f"<think>Hm.{kimi(('note:0', '{}'))}", [ONE], "never closed"),
    ("a name is guessed from arguments", "kimi", kimi(("3", OSLO)), [TEXT], "an id such as"),
    ("missing arguments are none", "harmony", harmony(arguments=""), [ONE], "arguments are missing"),
    ("a tool of no namespace", "harmony", harmony("note"), [ONE], "must go to functions.NAME"),
    ("a tool of another namespace", "harmony", harmony("browser.note"), [ONE], "must go to functions.NAME"),
    ("text before the header is content", "harmony", f"I look.{harmony()}", [ONE], "header"),
    ("arguments that are no object", "harmony", harmony(arguments="[1]"), [("note", [1])], "JSON object"),
]
"""What SGLang does, the format, a malformed reply, the calls that SGLang makes of it, and what ours says of it."""

DROPPED = [
    ("hermes", "<tool_call>\n{name: note}\n</tool_call>", "not valid JSON"),
    ("llama_json", "<|python_tag|>note(1)", "not valid JSON"),
    ("mistral", "[TOOL_CALLS] [note]", "not valid JSON"),
    ("mistral_args", '[TOOL_CALLS]note[ARGS]{"n": 1', "not valid JSON"),
    ("deepseek_v3", section(v3(arguments="{n}")), "not valid JSON"),
    ("deepseek_v31", section(v31(arguments="{n}")), "not valid JSON"),
    ("kimi", kimi(("note@1", "{}")), "an id such as"),
    ("kimi", "note:0<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>", "without its start"),
    ("glm", glm45({"n": 1}, ""), "a tool's name"),
    ("harmony", harmony(arguments="{n}"), "not valid JSON"),
]
"""Format, a malformed reply of which SGLang makes no call and says nothing, and what ours says of it."""

TAG, END, CALL = "</tool_call>", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "<|call|>"
PYTHON = "<|python_tag|>"

LOST = [
    ("an unknown tool's call is dropped", "hermes", hermes("gone"), [], ("gone", {})),
    (
        "a closing tag in a string ends the call",
        "hermes",
        f"<tool_call>{called(json.dumps({'text': TAG}))}</tool_call>",
        [],
        note(text=TAG),
    ),
    (
        "a closing tag in a string ends the call",
        "deepseek_v3",
        section(v3(arguments=json.dumps({"text": END}, ensure_ascii=False))),
        [],
        note(text=END),
    ),
    (
        "a closing tag in a string ends the call",
        "deepseek_v31",
        section(v31(arguments=json.dumps({"text": END}, ensure_ascii=False))),
        [],
        note(text=END),
    ),
    (
        "a control token in a string ends the call",
        "harmony",
        harmony(arguments=json.dumps({"text": CALL})),
        [],
        note(text=CALL),
    ),
    (
        "a control token in a string begins a call",
        "llama_json",
        llama(arguments=json.dumps({"text": PYTHON})),
        [],
        note(text=PYTHON),
    ),
    (
        "a closing tag in a value ends it",
        "qwen_coder",
        xml({"text": "a</parameter>b"}),
        [note(text="a")],
        note(text="a</parameter>b"),
    ),
    (
        "a closing tag in a value ends it",
        "qwen_coder",
        xml({"text": "a</tool_call>b"}),
        [note(text="a")],
        note(text="a</tool_call>b"),
    ),
    (
        "a closing tag in a value ends it",
        "glm",
        glm47({"text": "a</arg_value>b"}),
        [note(text="a")],
        note(text="a</arg_value>b"),
    ),
    (
        "a closing tag in a value ends the call",
        "glm",
        glm45({"text": "a</tool_call>b"}),
        [ONE],
        note(text="a</tool_call>b"),
    ),
    ("null is no text", "qwen_coder", xml({"text": "null"}), [note(text=None)], note(text="null")),
    ("references are not followed", "qwen_coder", xml({"area": "{}"}), [note(area="{}")], note(area={})),
    ("one text makes all values text", "qwen_coder", xml({"pick": 8}), [note(pick="8")], note(pick=8)),
    ("a large number is rounded", "qwen_coder", xml({"x": 2**53 + 1}), [note(x=2**53)], note(x=2**53 + 1)),
    ("null is text of Python", "glm", glm45({"text": "null"}), [note(text="None")], note(text="null")),
    ("quotes around text are dropped", "glm", glm47({"text": '"a"'}), [note(text="a")], note(text='"a"')),
    ("a list needs a space before it", "mistral", mistral("{}").replace(" [", "["), [], ONE),
    ("a call's id is no call's", "mistral_args", "[TOOL_CALLS]note[CALL_ID]abcdefghi[ARGS]{}", [], ONE),
    ("a header wants its content type", "harmony", harmony(behind=""), [], ONE),
    ("a call wants its own end", "harmony", harmony(end=""), [], ONE),
    ("a call wants its own start", "harmony", harmony().removeprefix("<|start|>assistant"), [], ONE),
]
"""What SGLang does, the format, a well-formed reply, the calls that SGLang makes of it, and the call that it is."""


def read(name, text):
    """The reply, and its calls as text, in which True is no 1."""
    reply = load_format(name).with_tools(TOOLS).parse(text)
    return reply, repr([(call.name, call.arguments) for call in reply.calls])


@pytest.mark.parametrize(("name", "text", "calls", "content"), ALIKE)
def test_a_well_formed_reply_is_read_as_sglang_reads_it(name, text, calls, content):
    reply, found = read(name, text)
    assert found == repr(calls)
    assert reply.content == content
    assert not reply.problems


@pytest.mark.parametrize(
    ("name", "text", "theirs", "expected"), [pytest.param(*case[1:], id=f"{case[1]}: {case[0]}") for case in REPAIRED]
)
def test_what_sglang_repairs_or_guesses_is_a_problem(name, text, theirs, expected):
    reply, found = read(name, text)
    assert found == "[]" != repr(theirs)
    assert expected in reply.problems[0]


@pytest.mark.parametrize(("name", "text", "expected"), DROPPED)
def test_what_sglang_drops_is_a_problem(name, text, expected):
    reply, found = read(name, text)
    assert found == "[]"
    assert expected in reply.problems[0]


@pytest.mark.parametrize(
    ("name", "text", "theirs", "ours"), [pytest.param(*case[1:], id=f"{case[1]}: {case[0]}") for case in LOST]
)
def test_a_well_formed_call_is_read_where_sglang_loses_or_changes_it(name, text, theirs, ours):
    reply, found = read(name, text)
    assert found == repr([ours]) != repr(theirs)
    assert not reply.problems


BEHIND = [("hermes", hermes()), ("qwen_coder", xml({})), ("glm", glm45({})), ("kimi", kimi(("note:0", "{}")))]


@pytest.mark.parametrize(("name", "text"), BEHIND)
def test_text_behind_calls_stays_content_where_sglang_drops_it(name, text):
    assert read(name, f"{text} Done.")[0].content == "Done."
