"""OpenAI's Chat Completions.

Source: https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from atropos_agent.gateway import fields, parts, refusals
from atropos_agent.gateway.answers import input_of
from atropos_agent.gateway.protocol import Protocol, event, noted
from atropos_agent.gateway.requests import Answer, Fault, GatewayRequest, HistoryCall, HistoryMessage, Refusal

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_KNOWN = (
    *("messages", "model", "tools", "tool_choice", "max_tokens", "max_completion_tokens", "stop", "stream"),
    *("response_format", "stream_options"),
)
_READ = ("role", "content", "tool_calls", "tool_call_id", "reasoning_content", "reasoning")
FUNCTION = ("type", "name", "description", "parameters")
"""Fields of a function that are read."""
_KINDS = {Fault.UNKNOWN_KEY: "authentication_error", Fault.NOT_FOUND: "not_found_error", Fault.OURS: "server_error"}


class Chat(Protocol):
    """Reads requests of `/v1/chat/completions` and writes their answers."""

    def read(self, body: Mapping[str, Any]) -> GatewayRequest:
        refusals.check(body)
        messages: list[HistoryMessage] = []
        answers = False
        for place, message in enumerate(fields.objects(body.get("messages"), "messages")):
            messages.append(_message(message, f"messages[{place}]", answers))
            answers = parts.answers(messages[-1], answers)
        limit = fields.whole(body.get("max_completion_tokens"), "max_completion_tokens", least=1)
        options = fields.mapping(body.get("stream_options"), "stream_options")
        given = fields.objects(body.get("tools"), "tools")
        tools = [tool(one, f"tools[{n}]") for n, one in enumerate(given)]
        forced, hidden = _choice(body.get("tool_choice"))
        if fields.mapping(body.get("response_format"), "response_format").get("type", "text") != "text":
            forced["response_format"] = str(body["response_format"]["type"])[:60]
        said = [one for one in body.get("messages") or () if one.get("role") != "tool"]
        functions = [one[one["type"]] for one in given]
        return GatewayRequest(
            messages,
            fields.model(body),
            () if hidden else tools,
            limit or fields.whole(body.get("max_tokens"), "max_tokens", least=1),
            fields.strings(body.get("stop"), "stop"),
            fields.flag(body.get("stream"), "stream"),
            forced=forced,
            noted=noted(body, _KNOWN, ("messages", said, _READ), ("tools", functions, FUNCTION)),
            extras={
                "include_usage": bool(options.get("include_usage")),
                "custom": {name for one in given if (name := _custom_name(one))},
            },
        )

    def body(self, answer: Answer, request: GatewayRequest) -> Mapping[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.content or (None if answer.calls else "")}
        if answer.thinking is not None:
            message["reasoning_content"] = answer.thinking
        if answer.calls:
            message["tool_calls"] = _calls(answer, request)
        choice = {"index": 0, "message": message, "finish_reason": _reason(answer), "logprobs": None}
        return {**_head(answer, request, "chat.completion"), "choices": [choice], "usage": _usage(answer)}

    def events(self, answer: Answer, request: GatewayRequest) -> Iterator[bytes]:
        head = _head(answer, request, "chat.completion.chunk")
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        if answer.thinking is not None:
            deltas.append({"reasoning_content": answer.thinking})
        if answer.content:
            deltas.append({"content": answer.content})
        deltas += [{"tool_calls": [{"index": place, **call}]} for place, call in enumerate(_calls(answer, request))]
        for delta in deltas:
            yield event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        yield event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": _reason(answer)}]})
        if request.extras["include_usage"]:
            yield event({**head, "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def error(self, refusal: Refusal) -> Mapping[str, Any]:
        return openai_error(refusal)

    def error_event(self, refusal: Refusal, request: GatewayRequest) -> bytes:
        return event(self.error(refusal))


def openai_error(refusal: Refusal) -> Mapping[str, Any]:
    """Return an error as OpenAI's clients know it."""
    error = {"message": str(refusal), "type": _KINDS.get(refusal.fault, "invalid_request_error")}
    code = "context_length_exceeded" if refusal.fault is Fault.TOO_LONG else None
    return {"error": {**error, "param": refusal.param, "code": code}}


def tool(given: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return a tool's schema. Raises Refusal for a tool not run by the agent."""
    if given.get("type") == "custom":
        custom = fields.mapping(given.get("custom"), f"{where}.custom")
        return schema({**custom, "parameters": INPUT}, f"{where}.custom")
    if given.get("type") != "function":
        raise refusals.tool(given.get("type"), f"{where}.type")
    function = fields.mapping(given.get("function"), f"{where}.function")
    return schema(function, f"{where}.function")


INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The parameters of a tool that takes text."""


def schema(function: Mapping[str, Any], where: str, *, parameters: str = "parameters") -> Mapping[str, Any]:
    """Return a function as every chat template is shown it. parameters: the key of their schema."""
    known = {
        "name": fields.text(function.get("name"), f"{where}.name"),
        "description": fields.text(function.get("description"), f"{where}.description", default=""),
        "parameters": fields.mapping(function.get(parameters), f"{where}.{parameters}")
        or {"type": "object", "properties": {}},
    }
    if not known["name"]:
        raise fields.wrong(f"{where}.name", "must not be empty")
    return {"type": "function", "function": known}


def _choice(choice: Any) -> tuple[dict[str, str], bool]:
    """Return the part of the reply that a tool choice wants forced, and whether tools are hidden."""
    if choice in (None, "auto", "none"):
        return {}, choice == "none"
    if isinstance(choice, str):
        return {"tool_choice": choice[:60]}, False
    function = fields.mapping(choice, "tool_choice").get("function")
    name = function.get("name") if isinstance(function, dict) else choice.get("name")
    return {"tool_choice": str(name or choice.get("type"))[:60]}, False


def _custom_name(given: Mapping[str, Any]) -> str:
    """Return the name of a tool that takes text; "" for another."""
    custom = given.get("custom")
    return str(custom.get("name")) if given.get("type") == "custom" and isinstance(custom, dict) else ""


def _message(message: Mapping[str, Any], where: str, answers: bool) -> HistoryMessage:
    """Return a message. answers: whether it comes after results of tools."""
    role = ROLES.get(fields.text(message.get("role"), f"{where}.role"))
    if role is None:
        raise fields.wrong(f"{where}.role", f"must be one of {', '.join(ROLES)}")
    refusals.check_message(message, where)
    calls = []
    for place, call in enumerate(fields.objects(message.get("tool_calls"), f"{where}.tool_calls")):
        at = f"{where}.tool_calls[{place}]"
        number = fields.text(call.get("id"), f"{at}.id")
        if call.get("type") == "custom":
            custom = fields.mapping(call.get("custom"), f"{at}.custom")
            arguments = {"input": fields.text(custom.get("input"), f"{at}.custom.input")}
            calls.append(HistoryCall(number, fields.text(custom.get("name"), f"{at}.custom.name"), arguments))
            continue
        function = fields.mapping(call.get("function"), f"{at}.function")
        name = fields.text(function.get("name"), f"{at}.function.name")
        calls.append(HistoryCall(number, name, function.get("arguments") or "{}"))
    thinking = message.get("reasoning_content") or message.get("reasoning")
    call_id = fields.text(message.get("tool_call_id"), f"{where}.tool_call_id") if role == "tool" else ""
    thought = thinking if isinstance(thinking, str) else None
    refuses = role in ("system", "user") and not answers
    text, unshown = parts.flatten_content(message.get("content"), f"{where}.content", refuses=refuses)
    return HistoryMessage(role, text, tuple(calls), thought, call_id, unshown=unshown)


def _head(answer: Answer, request: GatewayRequest, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{answer.number}", "object": kind, "created": int(time.time()), "model": request.model}


def _calls(answer: Answer, request: GatewayRequest) -> list[Mapping[str, Any]]:
    return [
        {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": input_of(call)}}
        if call.name in request.extras["custom"]
        else {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
        for call in answer.calls
    ]


def _reason(answer: Answer) -> str:
    if answer.finish_reason == "length":
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> Mapping[str, Any]:
    total = answer.prompt_tokens + answer.completion_tokens
    counted = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
    details = {"completion_tokens_details": {"reasoning_tokens": answer.thinking_tokens}}
    return {**counted, "total_tokens": total, **details}
