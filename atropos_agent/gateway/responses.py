"""OpenAI's Responses.

Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from atropos_agent.gateway import fields, parts, provider_tools, refusals
from atropos_agent.gateway.chat import FUNCTION, INPUT, ROLES, openai_error, schema
from atropos_agent.gateway.items import BY_ITEM, BY_TOOL, OUTPUTS, CallItem, output_of
from atropos_agent.gateway.protocol import Protocol, event, noted
from atropos_agent.gateway.requests import Answer, Fault, GatewayRequest, HistoryCall, HistoryMessage, Refusal, Schemas

_KNOWN = (
    *("input", "instructions", "model", "tools", "tool_choice", "max_output_tokens", "stream", "text", "include"),
    "previous_response_id",
)
_READ = (*FUNCTION, "tools", "environment")
_LOGPROBS = "message.output_text.logprobs"


class Responses(Protocol):
    """Reads requests of `/v1/responses` and writes their answers.

    Ids of items are made of the answer's number, so an item sent back tells which answer it was in.
    """

    def read(self, body: Mapping[str, Any]) -> GatewayRequest:
        refusals.check(body)
        given = fields.objects(body.get("tools"), "tools")
        shown, origins = _tools(given)
        messages = _messages(body, origins)
        instructed = isinstance(body.get("instructions"), str) and bool(body["instructions"])
        if instructed:
            messages = [HistoryMessage("system", body["instructions"]), *messages]
        inside = [one for tool in given if tool["type"] == "namespace" for one in tool.get("tools") or ()]
        included = fields.strings(body.get("include"), "include")
        if _LOGPROBS in included:
            raise fields.wrong("include", f"{_LOGPROBS!r}: logprobs are the rollout's own: its rows hold them")
        choice = body.get("tool_choice")
        forced = {} if choice in (None, "auto", "none") else {"tool_choice": _tool_choice(choice)}
        wording = fields.mapping(body.get("text"), "text")
        text_format = fields.mapping(wording.get("format"), "text.format")
        if text_format.get("type", "text") != "text":
            forced["text.format"] = str(text_format["type"])[:60]
        return GatewayRequest(
            messages,
            fields.model(body),
            () if choice == "none" else shown,
            fields.whole(body.get("max_output_tokens"), "max_output_tokens", least=1),
            (),
            fields.flag(body.get("stream"), "stream"),
            _previous(fields.text(body.get("previous_response_id"), "previous_response_id", default="")),
            instructed,
            forced=forced,
            noted=noted(body, _KNOWN, ("text", [wording], ("format",)), ("tools", [*given, *inside], _READ)),
            extras={"origins": origins, "sealed": "reasoning.encrypted_content" in included},
            history_field="input",
        )

    def body(self, answer: Answer, request: GatewayRequest) -> Mapping[str, Any]:
        return _response(answer, request, _items(answer, request))

    def events(self, answer: Answer, request: GatewayRequest) -> Iterator[bytes]:
        numbers = count()

        def make_event(kind: str, **data: Any) -> bytes:
            return event({"type": kind, "sequence_number": next(numbers), **data}, kind)

        begun = _response(answer, request, ()) | {"status": "in_progress", "usage": None, "incomplete_details": None}
        yield make_event("response.created", response=begun)
        yield make_event("response.in_progress", response=begun)
        items = _items(answer, request)
        for place, item in enumerate(items):
            yield make_event("response.output_item.added", output_index=place, item=_item_start(item))
            for kind, data in _deltas(item):
                yield make_event(kind, item_id=item["id"], output_index=place, **data)
            yield make_event("response.output_item.done", output_index=place, item=item)
        whole = _response(answer, request, items)
        yield make_event(f"response.{whole['status']}", response=whole)

    def error(self, refusal: Refusal) -> Mapping[str, Any]:
        return openai_error(refusal)

    def error_event(self, refusal: Refusal, request: GatewayRequest) -> bytes:
        code = "context_length_exceeded" if refusal.fault is Fault.TOO_LONG else "server_error"
        failed = _response_fields(request, "resp_failed") | {
            "status": "failed",
            "error": {"code": code, "message": str(refusal)},
        }
        return event({"type": "response.failed", "sequence_number": 0, "response": failed}, "response.failed")


def _tools(given: Sequence[Mapping[str, Any]]) -> tuple[Schemas, dict[str, Mapping[str, Any]]]:
    """Return the tools as they are shown to the model, and the form of their calls, by the name shown."""
    shown: list[Mapping[str, Any]] = []
    origins: dict[str, Mapping[str, Any]] = {}
    pending = [(tool, f"tools[{place}]", "") for place, tool in enumerate(given)][::-1]
    while pending:
        tool, where, space = pending.pop()
        match tool.get("type"):
            case "function":
                one = schema(tool, where)
            case "custom":
                one = schema({**tool, "parameters": INPUT}, where)
            case "namespace" if not space:
                name = fields.text(tool.get("name"), f"{where}.name")
                inside = fields.objects(tool.get("tools"), f"{where}.tools")
                pending += [(one, f"{where}.tools[{place}]", name) for place, one in enumerate(inside)][::-1]
                continue
            case other:
                known_one = provider_tools.openais(tool)
                if known_one is None:
                    raise refusals.tool(other, f"{where}.type")
                one = schema({**known_one, "name": other}, where)
        name = one["function"]["name"]
        known = f"{space}__{name}" if space else name
        origins[known] = {"type": tool["type"], "name": name, **({"namespace": space} if space else {})}
        shown.append({**one, "function": {**one["function"], "name": known}})
    return shown, origins


def _messages(body: Mapping[str, Any], origins: Mapping[str, Mapping[str, Any]]) -> list[HistoryMessage]:
    if isinstance(body.get("input"), str):
        return [HistoryMessage("user", body["input"])]
    shown = {(one.get("namespace", ""), one["name"]): name for name, one in origins.items()}
    replies: list[list[HistoryMessage]] = []
    handle: int | None = None
    answers = False
    for place, item in enumerate(fields.objects(body.get("input"), "input")):
        message = _parse_item(item, f"input[{place}]", shown, answers=answers)
        answers = parts.answers(message, answers)
        is_part = handle is None or message.handle is None or handle == message.handle
        # A reply of ours has one text: what stands before another is a message of its own.
        is_part = is_part and not (message.text and replies and any(part.text for part in replies[-1]))
        if replies and replies[-1][0].role == message.role == "assistant" and is_part:
            replies[-1].append(message)
            handle = message.handle if handle is None else handle
        else:
            replies.append([message])
            handle = message.handle
    return [_merge_parts(parts) for parts in replies]


def _merge_parts(parts: Sequence[HistoryMessage]) -> HistoryMessage:
    """Return a reply made of its parts, one an item; another message as it is."""
    if len(parts) == 1:
        return parts[0]
    return HistoryMessage(
        "assistant",
        "\n".join(part.text for part in parts if part.text),
        tuple(call for part in parts for call in part.calls),
        "\n".join(part.thinking for part in parts if part.thinking) or None,
        handle=next((part.handle for part in parts if part.handle is not None), None),
        refers=tuple(named for part in parts for named in part.refers),
    )


def _parse_item(
    item: Mapping[str, Any], where: str, shown: Mapping[tuple[str, str], str], *, answers: bool
) -> HistoryMessage:
    """Return an item as a message. answers: whether it comes after results of tools."""
    kind = item.get("type") or "message"
    if not isinstance(kind, str):
        raise refusals.part(kind, f"{where}.type")
    if kind in BY_ITEM:
        return _call(item, where, BY_ITEM[kind], shown)
    if kind in OUTPUTS:
        number = item.get("call_id") or (item.get("id") if kind == "local_shell_call_output" else None)
        text, unshown = parts.flatten_content(output_of(item), f"{where}.output", refuses=False)
        return HistoryMessage("tool", text, call_id=fields.text(number, f"{where}.call_id"), unshown=unshown)
    handle = _number(str(item.get("id") or item.get("encrypted_content") or ""))
    match kind:
        case "message":
            role = ROLES.get(fields.text(item.get("role"), f"{where}.role"))
            if role is None or role == "tool":
                raise fields.wrong(f"{where}.role", "must be one of system, developer, user, assistant")
            refuses = role != "assistant" and not answers
            text, unshown = parts.flatten_content(item.get("content"), f"{where}.content", refuses=refuses)
            return HistoryMessage(role, text, handle=handle, unshown=unshown)
        case "reasoning":
            blocks = [*fields.objects(item.get("summary"), where), *fields.objects(item.get("content"), where)]
            # The same text stands in both, where both are sent.
            texts = list(dict.fromkeys(fields.text(part.get("text"), where, default="") for part in blocks))
            return HistoryMessage("assistant", thinking="\n".join(texts) if texts else None, handle=handle)
        case "item_reference":
            name = str(item.get("id") or "")
            handle = _number(name)
            if handle is None:
                raise fields.wrong(f"{where}.id", "is no item's id of this rollout: send the item itself")
            return HistoryMessage("assistant", handle=handle, refers=_part_path(name))
    raise refusals.part(kind, f"{where}.type")


def _call(item: Mapping[str, Any], where: str, kind: CallItem, shown: Mapping[tuple[str, str], str]) -> HistoryMessage:
    named = kind.tool in ("function", "custom")  # of the others the tool's type is the name
    name = fields.text(item.get("name"), f"{where}.name") if named else kind.tool
    number = fields.text(item.get("call_id"), f"{where}.call_id")
    space = fields.text(item.get("namespace"), f"{where}.namespace", default="")
    call = HistoryCall(number, shown.get((space, name), name), kind.read(item, where))
    return HistoryMessage("assistant", calls=(call,), handle=_number(str(item.get("id") or "")))


def _number(name: str) -> int | None:
    """Return the answer's number in an id of ours; None for other ids."""
    parts = name.split("_")
    known = len(parts) >= 3 and parts[1] == "gw" and parts[2].isdecimal() and len(parts[2]) < 10
    return int(parts[2]) if known else None


def _part_path(name: str) -> Sequence[str | int]:
    """Return the part of an answer named by an item's id of ours; empty for thinking, which need not be sent."""
    kind, *_, last = name.split("_")
    called = kind == "fc" and last.isdecimal() and len(last) < 10
    return ("text",) if kind == "msg" else (int(last),) if called else ()


def _previous(name: str) -> int | None:
    if name and _number(name) is None:
        raise fields.wrong("previous_response_id", "is no response's id of this rollout")
    return _number(name)


def _tool_choice(choice: Any) -> str:
    choice = {"name": choice} if isinstance(choice, str) else fields.mapping(choice, "tool_choice")
    return str(choice.get("name") or choice.get("type"))[:60]


def _items(answer: Answer, request: GatewayRequest) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    state = "incomplete" if answer.finish_reason == "length" else "completed"
    if answer.thinking is not None:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        sealed = {"encrypted_content": f"rs_gw_{answer.number}"} if request.extras["sealed"] else {}
        items.append({"id": f"rs_gw_{answer.number}", "type": "reasoning", "summary": summary, **sealed})
    if answer.content or not answer.calls:
        part = {"type": "output_text", "text": answer.content, "annotations": [], "logprobs": []}
        named = {"id": f"msg_gw_{answer.number}", "type": "message", "role": "assistant"}
        items.append({**named, "status": state, "content": [part]})
    for place, call in enumerate(answer.calls):
        origin = request.extras["origins"].get(call.name, {"type": "function", "name": call.name})
        item = BY_TOOL[origin["type"]].write(call, f"fc_gw_{answer.number}_{place}")
        rest = {key: origin[key] for key in ("name", "namespace") if key in origin}
        items.append({**item, **rest, "status": state})
    return items


def _item_start(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an item as it is sent before its content."""
    begun = {"summary": [], "content": [], "arguments": "", "input": "", "status": "in_progress"}
    return {**item, **{key: value for key, value in begun.items() if key in item}}


def _deltas(item: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the events that tell an item's content, with their own fields."""
    match item["type"]:
        case "reasoning":
            text = item["summary"][0]["text"]
            at = {"summary_index": 0}
            empty = {"type": "summary_text", "text": ""}
            yield "response.reasoning_summary_part.added", {**at, "part": empty}
            yield "response.reasoning_summary_text.delta", {**at, "delta": text}
            yield "response.reasoning_summary_text.done", {**at, "text": text}
            yield "response.reasoning_summary_part.done", {**at, "part": item["summary"][0]}
        case "message":
            (part,) = item["content"]
            where = {"content_index": 0}
            yield "response.content_part.added", {**where, "part": {**part, "text": ""}}
            yield "response.output_text.delta", {**where, "delta": part["text"], "logprobs": []}
            yield "response.output_text.done", {**where, "text": part["text"], "logprobs": []}
            yield "response.content_part.done", {**where, "part": part}
        case "function_call":
            yield "response.function_call_arguments.delta", {"delta": item["arguments"]}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield "response.function_call_arguments.done", done
        case "custom_tool_call":
            yield "response.custom_tool_call_input.delta", {"delta": item["input"]}
            yield "response.custom_tool_call_input.done", {"input": item["input"]}


def _response(answer: Answer, request: GatewayRequest, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    cut = answer.finish_reason == "length"
    return _response_fields(request, f"resp_gw_{answer.number}") | {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": list(items),
        "usage": {
            "input_tokens": answer.prompt_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": answer.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": answer.thinking_tokens},
            "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        },
    }


def _response_fields(request: GatewayRequest, name: str) -> dict[str, Any]:
    """Return the fields of every response."""
    return {
        "id": name,
        "object": "response",
        "created_at": int(time.time()),
        "model": request.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }
