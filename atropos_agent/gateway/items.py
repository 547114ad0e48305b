"""Calls as items of Responses: of functions, of tools that take text, and of tools named by OpenAI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from atropos_agent.gateway import fields
from atropos_agent.gateway.answers import input_of, object_of
from atropos_agent.gateway.requests import ReplyCall

_ARGUMENTS, _INPUT = "arguments", "input"


@dataclass(frozen=True, slots=True)
class CallItem:
    """A kind of call. tool: the type of its tool. kind: of the item. key: of the item's content.

    fixed: the fields beside the arguments there; None if it holds text instead."""

    tool: str
    kind: str
    key: str
    fixed: Mapping[str, Any] | None = None

    def write(self, call: ReplyCall, number: str) -> dict[str, Any]:
        """Return a call as an item. number: the item's id."""
        # The output of a local shell names the call by the item's id.
        number = call.id if self.tool == "local_shell" else number
        return {"id": number, "type": self.kind, "call_id": call.id, self.key: self._held(call)}

    def read(self, item: Mapping[str, Any], where: str) -> Any:
        """Return the arguments in an item. Raises Refusal."""
        if self.fixed is None:
            text = fields.text(item.get(self.key), f"{where}.{self.key}")
            return text if self.key == _ARGUMENTS else {_INPUT: text}
        held = fields.mapping(item.get(self.key), f"{where}.{self.key}")
        return {key: one for key, one in held.items() if one is not None and one != self.fixed.get(key)}

    def _held(self, call: ReplyCall) -> Any:
        if self.fixed is not None:
            return {**self.fixed, **object_of(call)}
        return call.text if self.key == _ARGUMENTS else input_of(call)


_KINDS = (
    CallItem("function", "function_call", _ARGUMENTS),
    CallItem("custom", "custom_tool_call", _INPUT),
    CallItem("local_shell", "local_shell_call", "action", {"type": "exec", "env": {}}),
    CallItem("shell", "shell_call", "action", {"timeout_ms": None, "max_output_length": None}),
    CallItem("apply_patch", "apply_patch_call", "operation", {}),
)
BY_TOOL: Mapping[str, CallItem] = {one.tool: one for one in _KINDS}
BY_ITEM: Mapping[str, CallItem] = {one.kind: one for one in _KINDS}
OUTPUTS = frozenset(f"{one.kind}_output" for one in _KINDS)


def output_of(item: Mapping[str, Any]) -> Any:
    """Return the content of a call's output, as a message has it."""
    output = item.get("output")
    read = _OUTPUTS.get(str(item.get("type")))
    return output if read is None else read(item, output)


def _of_shell(item: Mapping[str, Any], output: Any) -> Any:
    """Return the output of commands, and how each ended."""
    if not isinstance(output, list) or not all(isinstance(one, dict) for one in output):
        return output
    texts = []
    for one in output:
        outcome = one.get("outcome")
        ended = outcome if isinstance(outcome, dict) else {}
        end = "timed out" if ended.get("type") == "timeout" else f"exit code {ended.get('exit_code')}"
        texts += [text for text in (one.get("stdout"), one.get("stderr")) if isinstance(text, str) and text]
        texts.append(f"[{end}]")
    return "\n".join(texts)


def _of_patch(item: Mapping[str, Any], output: Any) -> Any:
    """Return whether a patch was applied, and the client's message about it."""
    if output is not None and not isinstance(output, str):
        return output
    return "\n".join(text for text in (str(item.get("status") or "")[:60], output) if text)


_OUTPUTS: Mapping[str, Callable[[Mapping[str, Any], Any], Any]] = {
    "shell_call_output": _of_shell,
    "apply_patch_call_output": _of_patch,
}
