"""What vLLM's parsers for the same models make of a reply, and what ours do: alike where it is well-formed.

What its parsers return was seen by running those of vLLM 0.33 on the replies of this file; of MiniMax M3's, the part
that reads arguments. Replies of MiniMax M1, Solar and functionary, for which it has none, are as their templates write
them, and Command's too, whose parser is a compiled package's.
"""

import json

import pytest
from format_cases import NOW, ONE, OSLO, TEXT, TOOLS, TWICE, assert_only_b_runs, called, note

from atropos_agent.formats import load_format

M3 = "]<]minimax[>["


def m3(inside="", name="note"):
    """A call, in which § stands for the mark."""
    return f'§<tool_call>\n§<invoke name="{name}">{inside}§</invoke>\n§</tool_call>'.replace("§", M3)


def m3_field(name, value):
    return f"§<{name}>{value}§</{name}>"


def xtml(*calls):
    written = "".join(
        f'<|open|>call tool="{name}" index="{number}"<|sep|>{"".join(fields)}<|close|>call<|sep|>'
        for number, (name, *fields) in enumerate(calls, start=1)
    )
    return f"<|open|>tools<|sep|>{written}<|close|>tools<|sep|>"


def field(key, value, kind="string"):
    return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'


def hy3(*calls):
    written = "".join(
        f"<tool_call>{name}<tool_sep>\n"
        + "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in fields.items())
        + "</tool_call>\n"
        for name, fields in calls
    )
    return f"<tool_calls>\n{written}</tool_calls>".replace(">", ":opensource>")


def giga(name="note", arguments="{}"):
    return f'<|function_call|>{{"name": "{name}", "arguments": {arguments}}}'


def giga3(name="note", arguments="{}"):
    return giga(name, arguments).replace("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n")


def mini(fields, name="note"):
    return (
        f'<function name="{name}">'
        + "".join(f'<param name="{key}">{value}</param>' for key, value in fields.items())
        + "</function>"
    )


def apertus(*calls):
    return f"<|tools_prefix|>[{', '.join(calls)}]<|tools_suffix|>"


def solar(*calls):
    one = "<|tool_call:begin|>{}<|tool_call:name|>{}<|tool_call:args|>{}<|tool_call:end|>"
    return f"<|tool_calls|>{''.join(one.format(*call) for call in calls)}<|calls|>"


def command(*calls):
    one = '{{"tool_call_id": "{}", "tool_name": "{}", "parameters": {}}}'
    return f"<|START_ACTION|>[\n    {', '.join(one.format(*call) for call in calls)}\n]<|END_ACTION|>"


def functionary(name="note", arguments="{}"):
    return f"<function={name}>{arguments}</function>"


def m1(*lines):
    return "\n".join(["<tool_calls>", *lines, "</tool_calls>"])


def kimi_message(content):
    return f"<|open|>response<|sep|>{content}<|close|>response<|sep|>"


NESTED = m3_field("at", m3_field("a", "1") + m3_field("b", m3_field("item", "x") + m3_field("item", "y")))

ALIKE = [
    ("minimax_m3", m3(m3_field("text", "Oslo")), [TEXT], ""),
    ("minimax_m3", f"I look.{m3(m3_field('n', '2') + m3_field('sure', 'true'))}", [note(n=2, sure=True)], "I look."),
    ("minimax_m3", m3(m3_field("text", "12")), [note(text="12")], ""),
    ("minimax_m3", m3(m3_field("text", "  a\n</text> ")), [note(text="  a\n</text> ")], ""),
    ("minimax_m3", m3(m3_field("tags", m3_field("item", "x") + m3_field("item", "1"))), [note(tags=["x", "1"])], ""),
    ("minimax_m3", m3(m3_field("rows", m3_field("item", "x"))), [note(rows=["x"])], ""),
    ("minimax_m3", m3(NESTED), [note(at={"a": "1", "b": {"item": ["x", "y"]}})], ""),
    ("minimax_m3", m3(m3_field("at", "") + m3_field("tags", "")), [note(at={}, tags=[])], ""),
    ("minimax_m3", m3(m3_field("at", '{"a": 1}')), [note(at={"a": 1})], ""),
    (
        "minimax_m3",
        m3(m3_field("free", m3_field("a", "1")) + m3_field("word", "null")),
        [note(free={"a": "1"}, word=None)],
        "",
    ),
    ("minimax_m3", m3(name="now"), [NOW], ""),
    ("minimax_m3", "It rains.", [], "It rains."),
    ("kimi_k3", kimi_message("I look.") + xtml(("note", field("text", "Oslo"))), [TEXT], "I look."),
    ("kimi_k3", xtml(("note", field("n", "2", "number")), ("now",)), [note(n=2), NOW], ""),
    ("kimi_k3", xtml(("note", field("text", "a\n\n{}  "))), [note(text="a\n\n{}  ")], ""),
    ("kimi_k3", xtml(("note", field("at", '{"a": [null]}', "object"))), [note(at={"a": [None]})], ""),
    ("kimi_k3", xtml(("note", field("word", "null", "null"))) + "<|close|>message<|sep|>", [note(word=None)], ""),
    ("kimi_k3", kimi_message("It rains.") + "<|close|>message<|sep|>", [], "It rains."),
    ("hy3", hy3(("note", {"text": "Oslo"})), [TEXT], ""),
    ("hy3", f"I look.{hy3(('note', {'n': 2}), ('now', {}))}", [note(n=2), NOW], "I look."),
    ("hy3", hy3(("note", {"text": "12", "sure": "true"})), [note(text="12", sure=True)], ""),
    ("hy3", hy3(("note", {"at": '{"a": 1}', "tags": '["x"]'})), [note(at={"a": 1}, tags=["x"])], ""),
    ("hy3", hy3(("note", {"either": "7", "more": "5"})), [note(either=7, more="5")], ""),
    ("hy3", "It rains.", [], "It rains."),
    ("gigachat31", f"I look.{giga(arguments=OSLO)}", [TEXT], "I look."),
    ("gigachat31", giga("now"), [NOW], ""),
    ("gigachat3", f"I look.{giga3(arguments=OSLO)}", [TEXT], "I look."),
    ("gigachat3", giga3("now"), [NOW], ""),
    ("minicpm5", mini({"text": "Oslo"}), [TEXT], ""),
    ("minicpm5", mini({"text": "<![CDATA[a\n</param> & b]]>"}), [note(text="a\n</param> & b")], ""),
    ("minicpm5", mini({"text": "a &lt; b &amp;&amp; c"}), [note(text="a < b && c")], ""),
    ("minicpm5", mini({"at": "{'a': [1, None]}", "sure": "True"}), [note(at={"a": [1, None]}, sure=True)], ""),
    ("minicpm5", mini({"tags": '["x"]', "text": "12", "free": "5"}), [note(tags=["x"], text="12", free=5)], ""),
    ("apertus", f'I look.{apertus(f"""{{"note": {OSLO}}}""")}', [TEXT], "I look."),
    ("apertus", apertus('{"note": {}}', '{"now": {}}'), [ONE, NOW], ""),
]
"""Format, reply, the calls in it, its content."""

WRITTEN = [
    ("minicpm5", f"I look.\n{mini({'n': 2})}\n{mini({}, 'now')}", [note(n=2), NOW], "I look."),
    ("minimax_m1", f"I look.\n{m1(called(OSLO), called('{}'))}", [TEXT, ONE], "I look."),
    ("solar", solar(("a", "note", OSLO), ("b", "now", "{}")), [TEXT, NOW], ""),
    ("solar", f"<|think|>Hm.<|end|><|begin|>assistant{solar(('a', 'note', '{}'))}", [ONE], ""),
    ("solar", solar(("a", "note", "{}")).removesuffix("<|calls|>"), [ONE], ""),
    ("solar", "<|content|>It rains.", [], "It rains."),
    ("command", command((0, "note", OSLO), (1, "now", "{}")), [TEXT, NOW], ""),
    ("command", "<|START_TEXT|>It rains.<|END_TEXT|>", [], "It rains."),
    ("functionary", f"I look.{functionary(arguments=OSLO)}{functionary('now')}", [TEXT, NOW], "I look."),
    ("kimi_k3", f"<|open|>think<|sep|>Hm.<|close|>think<|sep|>{kimi_message('')}{xtml(('now',))}", [NOW], ""),
    ("hy3", f"<think:opensource>Hm.</think:opensource>{hy3(('now', {}))}", [NOW], ""),
    ("minimax_m3", f"<mm:think>Hm.</mm:think>{m3(name='now')}", [NOW], ""),
    ("minimax_m3", f"</mm:think>{m3(name='now')}", [NOW], ""),
]
"""The same for models without a parser in vLLM, for words that it drops, and for thinking, which others of it read."""

REPAIRED = [
    (
        "an unclosed call ends",
        "minimax_m3",
        m3(m3_field("text", "Oslo")).removesuffix(f"\n{M3}</tool_call>"),
        [TEXT],
        "not closed",
    ),
    (
        "elements after a broken one are lost",
        "minimax_m3",
        m3("§<text>Oslo" + m3_field("n", "2")),
        [ONE],
        "beside elements",
    ),
    ("words beside arguments are lost", "minimax_m3", m3("words" + m3_field("n", "2")), [ONE], "something else"),
    ("what is no number is text", "minimax_m3", m3(m3_field("n", "three")), [note(n="three")], "not integer"),
    ("arguments of one name are a list", "minimax_m3", m3(m3_field("n", "1") * 2), [note(n=[1, 1])], "twice"),
    (
        "words beside elements are a field",
        "minimax_m3",
        m3(m3_field("at", "w" + m3_field("a", "1"))),
        [note(at={"a": "1", "$text": "w"})],
        "beside elements",
    ),
    ("an unclosed call ends", "kimi_k3", xtml(("now",)).removesuffix("<|close|>tools<|sep|>"), [NOW], "not closed"),
    ("broken JSON is text", "kimi_k3", xtml(("note", field("n", "two", "number"))), [note(n="two")], "JSON"),
    (
        "the last of two keys counts",
        "kimi_k3",
        xtml(("note", field("n", "1", "number") + field("n", "2", "number"))),
        [note(n=2)],
        "twice",
    ),
    (
        "an argument without a type is text",
        "kimi_k3",
        xtml(("note", field("text", "Oslo").replace(' type="string"', ""))),
        [TEXT],
        "JSON type",
    ),
    (
        "a block of JSON is lost",
        "kimi_k3",
        xtml(("note", f'<|open|>json type="object"<|sep|>{OSLO}<|close|>json<|sep|>')),
        [ONE],
        "something else",
    ),
    ("an unclosed call ends", "hy3", hy3(("now", {})).removesuffix("</tool_calls:opensource>"), [NOW], "not closed"),
    ("what is no number is text", "hy3", hy3(("note", {"n": "three"})), [note(n="three")], "not integer"),
    (
        "null for text is text",
        "hy3",
        hy3(("note", {"word": "null"})).replace("word", "n"),
        [note(n=None)],
        "must be integer",
    ),
    ("the last of two keys counts", "hy3", hy3(("note", {"n": 1, "N": 2})).replace(">N<", ">n<"), [note(n=2)], "twice"),
    ("missing marks are no call", "hy3", hy3(("now", {})).replace("<tool_sep:opensource>", ""), [], "comes after"),
    ("text after a call is no call", "gigachat31", f"{giga()} Done.", [], "text after"),
    ("the last of two keys counts", "gigachat31", giga(arguments=TWICE), [note(n=2)], "same key"),
    ("bare line breaks are text", "gigachat31", giga(arguments='{"text": "a\nb"}'), [note(text="a\nb")], "as \\n"),
    ("arguments that are no object are no call", "gigachat3", giga3(arguments='"{}"'), [], '"arguments"'),
    ("what is no number is text", "minicpm5", mini({"n": "three"}), [note(n="three")], "can't be read"),
    ("two arguments of one name are no call", "minicpm5", mini({"n": 1, "N": 2}).replace('"N"', '"n"'), [], "twice"),
    ("an unclosed call is no call", "minicpm5", mini({"n": 1}).removesuffix("</function>"), [], "not closed"),
    ("the last of two keys counts", "apertus", apertus(f'{{"note": {TWICE}}}'), [note(n=2)], "same key"),
    ("arguments of text run", "apertus", apertus('{"note": "x"}'), [("note", "x")], "JSON object"),
    ("an unclosed list ends", "apertus", apertus('{"now": {}}').removesuffix("<|tools_suffix|>"), [NOW], "not closed"),
]
"""vLLM's way, format, reply, its calls, what we say of the reply instead."""

MALFORMED = [
    ("minimax_m1", m1("{"), "not valid JSON"),
    ("minimax_m1", m1(called()).removesuffix("</tool_calls>"), "not valid JSON"),
    ("minimax_m1", m1(), "a JSON list of calls"),
    ("solar", solar(("a", "note", "{")), "not valid JSON"),
    ("solar", solar(("a", "note", "{}")).replace("a<|tool_call:name|>", ""), "an id"),
    ("solar", "<|content|>x<|tool_call:begin|>", "outside of <|tool_calls|>"),
    ("command", command((0, "note", "[]")), '"parameters"'),
    ("command", command((0, "note", "{}")).replace("tool_name", "name"), '"tool_name"'),
    ("command", command((0, "note", "{}")).removesuffix("<|END_ACTION|>"), "not closed"),
    ("functionary", functionary(arguments="{"), "not valid JSON"),
    ("functionary", functionary(arguments="{} {}"), "not closed"),
    ("kimi_k3", f"<|open|>think<|sep|>{xtml(('now',))}<|close|>think<|sep|>", "does not run"),
]


def read(name, text):
    reply = load_format(name).with_tools(TOOLS).parse(text)
    return [(call.name, call.arguments) for call in reply.calls], reply


@pytest.mark.parametrize(("name", "text", "calls", "content"), [*ALIKE, *WRITTEN])
def test_well_formed_replies_are_read_alike(name, text, calls, content):
    found, reply = read(name, text)
    assert not reply.problems
    assert json.dumps(found) == json.dumps(calls)
    assert reply.content == content
    assert (reply.thinking == "Hm.") is ("Hm." in text)


@pytest.mark.parametrize(("theirs", "name", "text", "their_calls", "problem"), REPAIRED)
def test_what_vllm_repairs_or_loses_is_malformed_here(theirs, name, text, their_calls, problem):
    found, reply = read(name, text)
    assert len(reply.problems) == 1
    assert problem in reply.problems[0]
    assert not found


@pytest.mark.parametrize(("name", "text", "problem"), MALFORMED)
def test_other_replies_are_malformed(name, text, problem):
    found, reply = read(name, text)
    assert not found
    assert len(reply.problems) == 1
    assert problem in reply.problems[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kimi_k3", xtml(("a", field("x", "{", "object")), ("b",))),
        ("hy3", hy3(("", {}), ("b", {}))),
        ("solar", solar(("1", "a", "{"), ("2", "b", "{}"))),
        ("functionary", functionary("a", "{") + functionary("b")),
        ("minicpm5", mini({"x": "1"}, "a").replace("param", "parm") + mini({}, "b")),
        ("command", command((0, "a", "1"), (1, "b", "{}"))),
        ("apertus", apertus('{"a": 1}', '{"b": {}}')),
        (
            "minimax_m3",
            m3("words", "a").removesuffix(f"{M3}</tool_call>") + m3(name="b").removeprefix(f"{M3}<tool_call>"),
        ),
    ],
)
def test_a_call_beside_a_malformed_one_runs(name, text):
    assert_only_b_runs(name, text)
