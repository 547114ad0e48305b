"""Anthropic's Messages.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from atropos_agent.gateway import fields, parts, provider_tools, refusals
from atropos_agent.gateway.answers import object_of
from atropos_agent.gateway.chat import schema
from atropos_agent.gateway.protocol import Protocol, event, noted
from atropos_agent.gateway.requests import Answer, Fault, GatewayRequest, HistoryCall, HistoryMessage, Refusal

_KNOWN = ("messages", "model", "system", "tools", "tool_choice", "max_tokens", "stop_sequences", "stream", "thread")
_FUNCTION = ("type", "name", "description", "input_schema")
_RESULT = ("type", "tool_use_id", "content")
_ID = "msg_gw_"
_BILLING = "x-anthropic-billing-header"
"""Begins a block of Claude Code's system prompt. This block is no instruction, and may differ by request."""
_KINDS = {
    Fault.UNKNOWN_KEY: "authentication_error",
    Fault.NOT_FOUND: "not_found_error",
    Fault.TOO_LARGE: "request_too_large",
    Fault.OURS: "api_error",
}
_SIGNATURE = "gw-"


class Messages(Protocol):
    """Reads requests of `/v1/messages` and writes their answers.

    Thinking is signed with the answer's number and recognised by it.
    """

    ping = b'event: ping\ndata: {"type": "ping"}\n\n'

    def read(self, body: Mapping[str, Any]) -> GatewayRequest:
        refusals.check(body)
        system = _system(body.get("system"))
        messages = [HistoryMessage("system", system)] if system else []
        answers = False
        for place, message in enumerate(fields.objects(body.get("messages"), "messages")):
            for one in _split_message(message, f"messages[{place}]", answers=answers):
                messages.append(one)
                answers = parts.answers(one, answers)
        given = fields.objects(body.get("tools"), "tools")
        tools = [_tool(one, f"tools[{n}]") for n, one in enumerate(given)]
        choice = fields.mapping(body.get("tool_choice"), "tool_choice")
        kind = choice.get("type", "auto")
        forced = {} if kind in ("auto", "none") else {"tool_choice": str(choice.get("name") or kind)[:60]}
        output_format = fields.mapping(body.get("output_format"), "output_format") or fields.mapping(
            fields.mapping(body.get("output_config"), "output_config").get("format"), "output_config.format"
        )
        if output_format:
            forced["output_format"] = str(output_format.get("type"))[:60]
        behind = _continued(fields.mapping(body.get("thread"), "thread"))
        thinking = fields.mapping(body.get("thinking"), "thinking")
        said = fields.objects(body.get("messages"), "messages")
        blocks = [block for one in said if isinstance(one.get("content"), list) for block in one["content"]]
        results = [block for block in blocks if block.get("type") == "tool_result"]
        return GatewayRequest(
            messages,
            fields.model(body),
            () if kind == "none" else tools,
            fields.whole(body.get("max_tokens"), "max_tokens", least=1),
            fields.strings(body.get("stop_sequences"), "stop_sequences"),
            fields.flag(body.get("stream"), "stream"),
            behind,
            keeps_tools=behind is not None and "tools" not in body and kind != "none",
            continues=True,
            forced=forced,
            noted=noted(
                *(body, _KNOWN, ("tool_choice", [choice], ("type", "name")), ("tools", given, _FUNCTION)),
                *(("messages", said, ("role", "content")), ("tool_result", results, _RESULT)),
            ),
            extras={"thinking": "none" if thinking.get("type") == "disabled" else thinking.get("display")},
            behind_field="thread.previous_message_id",
        )

    def body(self, answer: Answer, request: GatewayRequest) -> Mapping[str, Any]:
        # Without a stream, a call that can't be read can only be sent as text.
        sound = [call for call in answer.calls if call.call is not None]
        blocks = _thinking(answer, request)
        if answer.whole:
            blocks.append({"type": "text", "text": answer.whole})
        blocks += [{"type": "tool_use", "id": one.id, "name": one.name, "input": object_of(one)} for one in sound]
        usage = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens}
        return _message(answer, request, usage) | {
            "content": blocks,
            "stop_reason": _reason(answer, called=bool(sound)),
            "stop_sequence": answer.stopped_at,
        }

    def events(self, answer: Answer, request: GatewayRequest) -> Iterator[bytes]:
        def make_event(kind: str, **data: Any) -> bytes:
            return event({"type": kind, **data}, kind)

        begun = _message(answer, request, {"input_tokens": answer.prompt_tokens, "output_tokens": 1})
        yield make_event("message_start", message=begun)
        for place, (block, deltas) in enumerate(_stream_blocks(answer, request)):
            yield make_event("content_block_start", index=place, content_block=block)
            for delta in deltas:
                yield make_event("content_block_delta", index=place, delta=delta)
            yield make_event("content_block_stop", index=place)
        reason = {"stop_reason": _reason(answer, called=bool(answer.calls)), "stop_sequence": answer.stopped_at}
        yield make_event("message_delta", delta=reason, usage={"output_tokens": answer.completion_tokens})
        yield make_event("message_stop")

    def error(self, refusal: Refusal) -> Mapping[str, Any]:
        kind = _KINDS.get(refusal.fault, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": str(refusal)}}

    def error_event(self, refusal: Refusal, request: GatewayRequest) -> bytes:
        return event(self.error(refusal), "error")


def _continued(thread: Mapping[str, Any]) -> int | None:
    """Return the number of the answer that a request continues, without its history; None if it has its own."""
    if thread.get("type") != "continue":
        return None
    name = fields.text(thread.get("previous_message_id"), "thread.previous_message_id")
    number = name.removeprefix(_ID)
    if number == name or not number.isdecimal() or len(number) > 9:
        raise fields.wrong("thread.previous_message_id", "is no message's id of this rollout")
    return int(number)


def _system(system: Any) -> str:
    if system is None or isinstance(system, str):
        return system or ""
    blocks = fields.objects(system, "system")
    texts = [parts.part(block, f"system[{place}]", refuses=True)[0] for place, block in enumerate(blocks)]
    return "\n".join(text for text in texts if not text.startswith(_BILLING))


def _split_message(message: Mapping[str, Any], where: str, *, answers: bool) -> Iterator[HistoryMessage]:
    """Yield the parts of a message: the results in it, each by itself, and its text. answers: whether it comes after
    results."""
    role = fields.text(message.get("role"), f"{where}.role")
    if role not in ("user", "assistant", "system"):
        raise fields.wrong(f"{where}.role", "must be one of user, assistant, system")
    content = message.get("content")
    blocks = (
        [{"type": "text", "text": content}] if isinstance(content, str) else fields.objects(content, f"{where}.content")
    )
    if role == "assistant":
        yield _reply(blocks, where)
        return
    answers = answers or any(block.get("type") == "tool_result" for block in blocks)
    texts: list[str] = []
    unshown = 0
    for place, block in enumerate(blocks):
        at = f"{where}.content[{place}]"
        if block.get("type") != "tool_result":
            text, words = parts.part(block, at, refuses=not answers)
            texts.append(text)
            unshown += words
            continue
        if texts:
            yield HistoryMessage(role, "\n".join(texts), unshown=unshown)
            texts, unshown = [], 0
        text, words = parts.flatten_content(block.get("content"), f"{at}.content", refuses=False)
        number = fields.text(block.get("tool_use_id"), f"{at}.tool_use_id")
        yield HistoryMessage("tool", text, call_id=number, unshown=words)
    if texts or not blocks:
        yield HistoryMessage(role, "\n".join(texts), unshown=unshown)


def _reply(blocks: Any, where: str) -> HistoryMessage:
    texts, calls, thoughts, handle = [], [], [], None
    for place, block in enumerate(blocks):
        at = f"{where}.content[{place}]"
        match block.get("type"):
            case "thinking":
                thoughts.append(fields.text(block.get("thinking"), f"{at}.thinking"))
                number = str(block.get("signature") or "").removeprefix(_SIGNATURE)
                handle = int(number) if number.isdecimal() and len(number) < 10 else handle
            case "tool_use":
                name = fields.text(block.get("name"), f"{at}.name")
                calls.append(HistoryCall(fields.text(block.get("id"), f"{at}.id"), name, block.get("input") or {}))
            case _:
                texts.append(parts.part(block, at, refuses=False)[0])
    return HistoryMessage(
        "assistant", "\n".join(texts), calls, "\n".join(thoughts) if thoughts else None, handle=handle
    )


def _tool(tool: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    kind = tool.get("type")
    known = provider_tools.anthropics(kind) if isinstance(kind, str) and "input_schema" not in tool else None
    if known is not None:
        return schema({**tool, **known}, where)
    if kind not in (None, "custom"):
        raise refusals.tool(kind, f"{where}.type")
    return schema(tool, where, parameters="input_schema")


def _message(answer: Answer, request: GatewayRequest, usage: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": f"{_ID}{answer.number}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    }


def _thinking(answer: Answer, request: GatewayRequest) -> list[dict[str, Any]]:
    """Return the block of thinking; none where the client has switched thinking off, an empty one where it omits it."""
    wanted = request.extras["thinking"]
    if not answer.thinking or wanted == "none":
        return []
    text = "" if wanted == "omitted" else answer.thinking
    return [{"type": "thinking", "thinking": text, "signature": f"{_SIGNATURE}{answer.number}"}]


def _stream_blocks(
    answer: Answer, request: GatewayRequest
) -> Iterator[tuple[Mapping[str, Any], list[Mapping[str, Any]]]]:
    """Yield each block as it begins, and its deltas."""
    for block in _thinking(answer, request):
        told = [{"type": "thinking_delta", "thinking": block["thinking"]}] if block["thinking"] else []
        signed = {"type": "signature_delta", "signature": block["signature"]}
        yield {**block, "thinking": "", "signature": ""}, [*told, signed]
    if answer.content:
        yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": answer.content}]
    for call in answer.calls:
        begun = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
        yield begun, [{"type": "input_json_delta", "partial_json": call.text}]


def _reason(answer: Answer, *, called: bool) -> str:
    if answer.finish_reason == "length":
        return "max_tokens"
    if called:
        return "tool_use"
    return "stop_sequence" if answer.stopped_at is not None else "end_turn"
