"""XML formats with `<invoke name="…">` and a tag for each argument: MiniMax M2's and MiniCPM 5's, DSML of DeepSeek V3.2
and V4, and Kimi K3's XTML.

Text stands bare, everything else as JSON. In MiniMax's and MiniCPM's the tool's schema says which it is, in the others
an attribute does. A literal closing tag in a JSON string is text, in a text as long as no other tag of the call follows
it.

Formats: the chat templates of MiniMax-M2, DeepSeek-V3.2, DeepSeek-V4, Kimi-K3 and MiniCPM5.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import unescape

from atropos_agent.formats.pythonic import PYTHON
from atropos_agent.formats.reading import Read, expect, read_json, skip_space, write_json
from atropos_agent.formats.sections import SectionFormat
from atropos_agent.formats.typed import ArgumentTypes, checked, end_of_value, type_of
from atropos_agent.types import THINK, THINK_END, Reply
from tools.base import ToolCall

DSML = "｜DSML｜"
_CDATA, _CDATA_END = "<![CDATA[", "]]>"
_QUOTES = {"&quot;": '"', "&apos;": "'"}
_TYPED = re.compile(r'\s+type="(string|number|boolean|null|array|object)"\s*<\|sep\|>')
_FLAGS = {' string="true">': True, ' string="false">': False}


class InvokeFormat(SectionFormat):
    """A section of `<invoke>` tags. A subclass defines the text of their `<parameter>` tags after the argument's name.

    parameter, parameter_end: around an argument; the first ends at the start of its name.
    name_end: the text of the call's tag after the tool's name and its quote.
    """

    parameter: str
    parameter_end: str
    name_end = re.compile(r"\s*>")
    between = "\n"

    def read_one(self, text: str, start: int) -> tuple[Read, int]:
        name, place = read_quoted_name(text, start)
        if (closed := self.name_end.match(text, place)) is None:
            raise ValueError(f"the tag with the tool's name {name!r} is not closed")
        place = closed.end()
        arguments: dict[str, Any] = {}
        while not text.startswith(self.call_end, place := skip_space(text, place)):
            place = expect(text, place, self.parameter, f'the call holds something else than {self.parameter}…"> tags')
            key, place = read_quoted_name(text, place)
            if key in arguments:
                raise ValueError(f"the argument {key!r} is there twice")
            arguments[key], place = self.read_value(name, key, text, place)
            place += len(self.parameter_end)
        return Read(name, arguments), place + len(self.call_end)

    def read_value(self, name: str, key: str, text: str, start: int) -> tuple[Any, int]:
        """Read an argument after its name in quotes; return it and the place of its closing tag. Raises ValueError."""
        raise NotImplementedError  # abstract: each subclass reads its own model's values

    def value_ends(self, text: str, start: int) -> int:
        """Return the place of a value's closing tag."""
        return end_of_value(text, start, self.parameter_end, (self.parameter, self.call_end))

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        written = [self.write_call(call, number) for number, call in enumerate(calls)]
        return self.between.join([self.opening, *written, self.closing]) if calls else ""

    def write(self, call: ToolCall) -> str:
        return checked(self, call, self.write_all([call]))

    def write_call(self, call: ToolCall, number: int) -> str:
        parts = [f"{self.call}{call.name}{self.named(number)}"]
        parts += [f'{self.parameter}{key}"{self.value(call, key)}{self.parameter_end}' for key in call.arguments]
        return self.between.join([*parts, self.call_end])

    def named(self, number: int) -> str:
        """Return the text after the tool's name in the tag of a call, which has this number in the section."""
        return '">'

    def value(self, call: ToolCall, key: str) -> str:
        """Return the text after an argument's name. Raises ValueError."""
        raise NotImplementedError  # abstract: each subclass writes its own model's values


class MiniMax(InvokeFormat):
    """The training format of MiniMax M2 models."""

    opening, closing = "<minimax:tool_call>", "</minimax:tool_call>"
    call, call_end = '<invoke name="', "</invoke>"
    parameter, parameter_end = '<parameter name="', "</parameter>"
    inner: Sequence[str] = (call, call_end, parameter, parameter_end)
    control: Sequence[str] = (opening, closing, THINK, THINK_END)
    frame = ("<response>", "</response>")
    shape = f'{opening}\n{call}<tool name>">\n{parameter}<argument>"><value>{parameter_end}\n{call_end}\n{closing}'

    prefer_json = False

    def __init__(self, schemas: Sequence[Mapping[str, Any]] = ()) -> None:
        self._types = ArgumentTypes(schemas, prefer_json=self.prefer_json)

    def with_tools(self, schemas: Sequence[Mapping[str, object]]) -> MiniMax:
        return type(self)(schemas)

    def read_value(self, name: str, key: str, text: str, start: int) -> tuple[Any, int]:
        start = expect(text, start, ">", f"the tag with the argument's name {key!r} is not closed")
        end = self.value_ends(text, self._types.end_of_json(name, key, text, start))
        return self._types.value(name, key, text[start:end]), end

    def value(self, call: ToolCall, key: str) -> str:
        return f">{self._types.text(call.name, key, call.arguments[key])}"


class MiniCpm5(MiniMax):
    """The training format of MiniCPM 5 models: calls without a section, values as Python writes them.

    As in vLLM's `minicpm5`, the text of a CDATA block is taken as it is."""

    opening, closing = call, call_end = '<function name="', "</function>"
    parameter, parameter_end = '<param name="', "</param>"
    inner = (parameter, parameter_end)
    control = ("<function", "</function>", "<param", "</param>", _CDATA, _CDATA_END, THINK, THINK_END)
    between = ""
    frame = ("<tool_response>\n", "\n</tool_response>")
    shape = f'{call}<tool name>">{parameter}<argument>"><value>{parameter_end}{call_end}'
    prefer_json = True

    def write_all(self, calls: Sequence[ToolCall]) -> str:
        return "\n".join(self.write_call(call, number) for number, call in enumerate(calls))

    def read_value(self, name: str, key: str, text: str, start: int) -> tuple[Any, int]:
        if text.startswith(f">{_CDATA}", start):
            start += len(_CDATA) + 1
            end = end_of_value(text, start, f"{_CDATA_END}{self.parameter_end}", (self.parameter, self.call_end))
            return self._types.value(name, key, text[start:end]), end + len(_CDATA_END)
        start = expect(text, start, ">", f"the tag with the argument's name {key!r} is not closed")
        end = self.value_ends(text, self._types.end_of_json(name, key, text, start))
        bare = unescape(text[start:end], _QUOTES)
        try:
            return self._types.value(name, key, bare), end
        except ValueError:
            value, behind = PYTHON.read(bare, 0)
            expect(f"{bare}>", behind, ">", f"there is text after the value of the argument {key!r}")
            return self._types.value(name, key, write_json(value)), end

    def value(self, call: ToolCall, key: str) -> str:
        text = super().value(call, key)
        marked = isinstance(call.arguments[key], str) and any(sign in text[1:] for sign in "<&\n")
        return f">{_CDATA}{text[1:]}{_CDATA_END}" if marked else text


class DeepSeekV32(InvokeFormat):
    """The training format of DeepSeek V3.2 models."""

    opening, closing = f"<{DSML}function_calls>", f"</{DSML}function_calls>"
    call, call_end = f'<{DSML}invoke name="', f"</{DSML}invoke>"
    parameter, parameter_end = f'<{DSML}parameter name="', f"</{DSML}parameter>"
    inner = (DSML,)
    control = (DSML, THINK, THINK_END)
    frame = ("<result>", "</result>")
    shape = (
        f'{opening}\n{call}<tool name>">\n{parameter}<argument>" string="<true or false>"><value>{parameter_end}\n'
        f"{call_end}\n{closing}"
    )

    def read_value(self, name: str, key: str, text: str, start: int) -> tuple[Any, int]:
        flag = next((flag for flag in _FLAGS if text.startswith(flag, start)), None)
        if flag is None:
            raise ValueError(f'the argument {key!r} must say string="true" or string="false"')
        start += len(flag)
        if _FLAGS[flag]:
            end = self.value_ends(text, start)
            return text[start:end], end
        value, behind = read_json(text, start)
        expect(text, behind, self.parameter_end, f"there is text after the JSON of the argument {key!r}")
        return value, skip_space(text, behind)

    def value(self, call: ToolCall, key: str) -> str:
        value = call.arguments[key]
        flag = next(flag for flag, is_text in _FLAGS.items() if is_text == isinstance(value, str))
        return f"{flag}{value if isinstance(value, str) else write_json(value)}"


class DeepSeekV4(DeepSeekV32):
    """The training format of DeepSeek V4 models: V3.2's, with another tag around."""

    opening, closing = f"<{DSML}tool_calls>", f"</{DSML}tool_calls>"
    frame = ("<tool_result>", "</tool_result>")
    shape = DeepSeekV32.shape.replace("function_calls", "tool_calls")


class KimiK3(InvokeFormat):
    """The training format of Kimi K3 models: words in control tokens, the response and each argument too.

    As in vLLM's `kimi_k3`, text stays as it is, and everything else is JSON."""

    opening, closing = "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"
    call, call_end = '<|open|>call tool="', "<|close|>call<|sep|>"
    parameter, parameter_end = '<|open|>argument key="', "<|close|>argument<|sep|>"
    name_end = re.compile(r'(?:\s+index="\d{1,9}")?\s*<\|sep\|>')
    inner = (call, call_end, parameter, parameter_end)
    control = ("<|open|>", "<|close|>", "<|sep|>")
    thinking = ("<|open|>think<|sep|>", "<|close|>think<|sep|>")
    wrapping = re.compile(r"<\|(?:open|close)\|>response<\|sep\|>|<\|close\|>message<\|sep\|>")
    between = ""
    channelled = True
    shape = (
        f'{opening}{call}<tool name>" index="<number>"<|sep|>{parameter}<argument>" type="<JSON type>"<|sep|><value>'
        f"{parameter_end}{call_end}{closing}"
    )

    def read_value(self, name: str, key: str, text: str, start: int) -> tuple[Any, int]:
        if (typed := _TYPED.match(text, start)) is None:
            raise ValueError(f'the argument {key!r} must say its JSON type, such as type="string"')
        if typed[1] == "string":
            end = self.value_ends(text, typed.end())
            return text[typed.end() : end], end
        value, behind = read_json(text, typed.end())
        expect(text, behind, self.parameter_end, f"there is text after the JSON of the argument {key!r}")
        return value, skip_space(text, behind)

    def named(self, number: int) -> str:
        return f'" index="{number + 1}"<|sep|>'

    def value(self, call: ToolCall, key: str) -> str:
        value = call.arguments[key]
        (named,) = type_of(value) - {"integer"}
        return f' type="{named}"<|sep|>{value if isinstance(value, str) else write_json(value)}'

    def turn(self, reply: Reply) -> str:
        think, think_end = self.thinking
        thought = "" if reply.thinking is None else f"{think}{reply.thinking}{think_end}"
        response = f"<|open|>response<|sep|>{reply.content}<|close|>response<|sep|>"
        return f"{thought}{response}{self.write_all(reply.calls)}<|close|>message<|sep|>"


def read_quoted_name(text: str, start: int) -> tuple[str, int]:
    """Return a name that begins after its opening quote, and the place after the closing one. Raises ValueError."""
    end = text.find('"', start, start + 1000)
    name = text[start:end] if end >= 0 else ""
    if not name or any(character in "<>\n" for character in name):
        raise ValueError("the name of a tool or an argument is missing, or not closed")
    return name, end + 1
