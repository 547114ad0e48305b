"""Google's generateContent.

Source: https://ai.google.dev/api/generate-content. Keys may be written in both cases of Google's JSON:
systemInstruction and system_instruction.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from atropos_agent.engines.http import dump_json
from atropos_agent.gateway import fields, parts, refusals
from atropos_agent.gateway.answers import object_of
from atropos_agent.gateway.chat import schema
from atropos_agent.gateway.protocol import Protocol, event, noted
from atropos_agent.gateway.requests import Answer, Fault, GatewayRequest, HistoryCall, HistoryMessage, Refusal

PATH = r"models/(?P<model>.+):(?P<verb>generateContent|streamGenerateContent|countTokens)"
"""The end of a request's path: it names the model, and says whether the answer is streamed."""
_STATUS = {
    Fault.UNKNOWN_KEY: "UNAUTHENTICATED",
    Fault.NOT_FOUND: "NOT_FOUND",
    Fault.TOO_SLOW: "DEADLINE_EXCEEDED",
    Fault.OURS: "INTERNAL",
}
_KNOWN = (
    *("contents", "model", "stream", "systemInstruction", "tools", "toolConfig", "generationConfig"),
    *("maxOutputTokens", "stopSequences", "candidateCount", "responseMimeType", "responseModalities"),
)
_FUNCTION = ("name", "description", "parameters", "parametersJsonSchema")
_SNAKE, _DIGITS = re.compile(r"_([a-z])"), re.compile(r"\d{1,10}", re.ASCII)
_OWN = frozenset({"args", "response", "parameters", "parametersJsonSchema", "responseSchema", "responseJsonSchema"})
"""Keys of values that are not the protocol's."""
_REPEATED = frozenset({"contents", "parts", "tools", "functionDeclarations"})
"""Keys of lists. Google takes an object for a list of one, and its own examples send it."""


class Gemini(Protocol):
    """Reads requests of `/v1beta/models/MODEL:generateContent` and writes their answers.

    Calls have ids. A client without them gets its results by name and order.
    Google's client for JavaScript reads nothing but events with data in a stream, and white space before them; errors
    it reads as plain JSON.
    """

    ping = b"\n"

    def read(self, body: Mapping[str, Any]) -> GatewayRequest:
        body = _to_camel_case(body)
        body = fields.mapping(body.get("generateContentRequest"), "generateContentRequest") or body  # of countTokens
        if body.get("cachedContent"):
            raise fields.wrong("cachedContent", "contents are not kept by name: send them")
        config = fields.mapping(body.get("generationConfig"), "generationConfig")
        choice = fields.mapping(body.get("toolConfig"), "toolConfig")
        calling = fields.mapping(choice.get("functionCallingConfig"), "functionCallingConfig")
        mode = str(calling.get("mode") or "AUTO").upper()
        forced = {"tool_choice": "any"} if mode == "ANY" else {}
        if config.get("responseMimeType") not in (None, "", "text/plain"):
            forced["responseMimeType"] = str(config["responseMimeType"])[:60]
        at = "generationConfig.thinkingConfig"
        thinking = fields.mapping(config.get("thinkingConfig"), at)
        tools = _tools(body)
        functions = [one for given in body.get("tools") or () for one in given.get("functionDeclarations") or ()]
        return GatewayRequest(
            list(_history(body)),
            fields.model(body),
            () if mode == "NONE" else tools,
            fields.whole(_longest(config), "generationConfig.maxOutputTokens", least=1),
            fields.strings(config.get("stopSequences"), "generationConfig.stopSequences"),
            fields.flag(body.get("stream"), "stream"),
            continues=True,
            forced=forced,
            noted=noted(
                *({**body, **config}, _KNOWN, ("tools", functions, _FUNCTION)),
                ("toolConfig", [choice], ("functionCallingConfig",)),
                ("functionCallingConfig", [calling], () if mode == "VALIDATED" else ("mode",)),
            ),
            extras={"thoughts": fields.flag(thinking.get("includeThoughts"), f"{at}.includeThoughts")},
            history_field="contents",
        )

    def body(self, answer: Answer, request: GatewayRequest) -> Mapping[str, Any]:
        total = answer.prompt_tokens + answer.completion_tokens
        counted = {
            "promptTokenCount": answer.prompt_tokens,
            "candidatesTokenCount": answer.completion_tokens - answer.thinking_tokens,
            "thoughtsTokenCount": answer.thinking_tokens,
        }
        candidate = {
            "content": {"role": "model", "parts": _parts(answer, shows_thinking=request.extras["thoughts"])},
            "finishReason": "MAX_TOKENS" if answer.finish_reason == "length" else "STOP",
            "index": 0,
        }
        return {
            "candidates": [candidate],
            "usageMetadata": {**counted, "totalTokenCount": total},
            "modelVersion": request.model,
            "responseId": f"gw-{answer.number}",
        }

    def events(self, answer: Answer, request: GatewayRequest) -> Iterator[bytes]:
        yield event(self.body(answer, request))

    def error(self, refusal: Refusal) -> Mapping[str, Any]:
        status = _STATUS.get(refusal.fault, "INVALID_ARGUMENT")
        return {"error": {"code": refusal.fault.status, "message": str(refusal), "status": status}}

    def error_event(self, refusal: Refusal, request: GatewayRequest) -> bytes:
        return dump_json(self.error(refusal)) + b"\n"

    def counted(self, tokens: int) -> Mapping[str, Any]:
        return {"totalTokens": tokens}


def of_path(path: str, query: bytes, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a body with the facts of its path. Raises Refusal for a stream of another form than events."""
    found = re.fullmatch(PATH, path)
    if found is None:
        return body
    stream = found["verb"] == "streamGenerateContent"
    if stream and b"alt=sse" not in query.split(b"&"):
        raise fields.wrong("alt", "must be sse: a stream is made of server-sent events")
    return {**body, "model": found["model"], "stream": stream}


def _to_camel_case(value: Any) -> Any:
    """Return a value with its keys in camel case, but for those that are not the protocol's; without fields that are
    null, which are not set, and with lists where an object stands for one."""
    if isinstance(value, list):
        return [_to_camel_case(one) for one in value]
    if not isinstance(value, dict):
        return value
    named = ((_SNAKE.sub(lambda found: found[1].upper(), key), one) for key, one in value.items() if one is not None)
    listed = ((key, [one] if key in _REPEATED and isinstance(one, dict) else one) for key, one in named)
    return {key: one if key in _OWN else _to_camel_case(one) for key, one in listed}


def _number(value: Any) -> Any:
    """Return an integer of Google's JSON, which may stand in quotes; any other value as it is."""
    return int(value) if isinstance(value, str) and _DIGITS.fullmatch(value) else value


def _longest(config: Mapping[str, Any]) -> Any:
    if _number(config.get("candidateCount")) not in (None, 1):
        raise fields.wrong("generationConfig.candidateCount", "there is one candidate; ask several times for more")
    if config.get("responseLogprobs"):
        raise fields.wrong("generationConfig.responseLogprobs", "logprobs are the rollout's own: its rows hold them")
    wanted = fields.strings(config.get("responseModalities"), "generationConfig.responseModalities")
    if any(one.upper() != "TEXT" for one in wanted):
        raise fields.wrong("generationConfig.responseModalities", "only text is served")
    return _number(config.get("maxOutputTokens"))


def _tools(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the functions. Raises Refusal for tools run by the provider."""
    found = []
    for place, one in enumerate(fields.objects(body.get("tools"), "tools")):
        if others := [key for key, value in one.items() if key != "functionDeclarations" and value is not None]:
            raise refusals.tool(others[0], f"tools[{place}]")
        at = f"tools[{place}].functionDeclarations"
        for number, function in enumerate(fields.objects(one.get("functionDeclarations"), at)):
            given = fields.mapping(function.get("parametersJsonSchema"), f"{at}[{number}].parametersJsonSchema")
            given = given or _json_schema(function.get("parameters"))
            found.append(schema({**function, "parameters": given}, f"{at}[{number}]"))
    return found


def _json_schema(value: Any) -> Any:
    """Return a schema of Google's as JSON Schema: names of types are small."""
    if isinstance(value, list):
        return [_json_schema(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: one.lower() if key == "type" and isinstance(one, str) else _json_schema(one) for key, one in value.items()
    }


def _history(body: Mapping[str, Any]) -> Iterator[HistoryMessage]:
    system = fields.mapping(body.get("systemInstruction"), "systemInstruction")
    if text := "\n".join(_texts(system, "systemInstruction")):
        yield HistoryMessage("system", text)
    answers, unnamed, calls = False, 0, list[HistoryCall]()
    for place, content in enumerate(fields.objects(body.get("contents"), "contents")):
        at = f"contents[{place}]"
        role = fields.text(content.get("role"), f"{at}.role", default="user")
        if role == "model":
            reply = _reply(content, at, unnamed)
            calls, unnamed = list(reply.calls), unnamed + len(reply.calls)
            answers = False
            yield reply
            continue
        if role not in ("user", "function"):
            raise fields.wrong(f"{at}.role", "must be one of user, model, function")
        for one in _split_content(content, at, calls, answers=answers):
            yield one
            answers = parts.answers(one, answers)


def _texts(content: Mapping[str, Any], where: str) -> Iterator[str]:
    for place, block in enumerate(fields.objects(content.get("parts"), f"{where}.parts")):
        yield _part(block, f"{where}.parts[{place}]", refuses=True)[0]


def _part(block: Mapping[str, Any], where: str, *, refuses: bool) -> tuple[str, int]:
    """Return a part that is no call and no result as text, and whether words stand for it."""
    if "text" in block:
        return fields.text(block["text"], f"{where}.text"), 0
    kind = next((key for key in block if key.endswith("Data")), "part")
    return parts.part({"type": kind, **block}, where, refuses=refuses)


def _split_content(
    content: Mapping[str, Any], where: str, calls: list[HistoryCall], *, answers: bool
) -> Iterator[HistoryMessage]:
    """Yield the parts of a message: the results in it, each by itself, and its text. calls: those without a result
    so far; answers: whether it comes after results."""
    blocks = fields.objects(content.get("parts"), f"{where}.parts")
    answers = answers or any("functionResponse" in block for block in blocks)
    texts: list[str] = []
    unshown = 0
    for place, block in enumerate(blocks):
        at = f"{where}.parts[{place}]"
        if "functionResponse" not in block:
            text, words = _part(block, at, refuses=not answers)
            texts.append(text)
            unshown += words
            continue
        if texts:
            yield HistoryMessage("user", "\n".join(texts), unshown=unshown)
            texts, unshown = [], 0
        yield _result(
            fields.mapping(block["functionResponse"], f"{at}.functionResponse"), f"{at}.functionResponse", calls
        )
    if texts or not blocks:
        yield HistoryMessage("user", "\n".join(texts), unshown=unshown)


def _result(given: Mapping[str, Any], where: str, calls: list[HistoryCall]) -> HistoryMessage:
    name = fields.text(given.get("name"), f"{where}.name", default="")
    number = fields.text(given.get("id"), f"{where}.id", default="")
    meant = next((call for call in calls if (call.id == number if number else call.name == name)), None)
    if meant is not None:
        calls.remove(meant)
        number = meant.id
    text, unshown = _returned(fields.mapping(given.get("response"), f"{where}.response"))
    texts = [text]
    for place, block in enumerate(fields.objects(given.get("parts"), f"{where}.parts")):
        more, words = _part(block, f"{where}.parts[{place}]", refuses=False)
        texts.append(more)
        unshown += words
    return HistoryMessage("tool", "\n".join(texts), call_id=number, unshown=unshown)


def _returned(response: Mapping[str, Any]) -> tuple[str, int]:
    """Return what a function returned, and how many files in it are words: a text alone as it is, the rest as JSON."""
    match response:
        case {"output": str(text)} | {"result": str(text)} if len(response) == 1:
            return text, 0
    return parts.show_value(response) if response else ("", 0)


def _reply(content: Mapping[str, Any], where: str, unnamed: int) -> HistoryMessage:
    """Return a reply. unnamed: how many calls stand before it: a call without an id is named by its place."""
    texts: list[str] = []
    calls: list[HistoryCall] = []
    thoughts: list[str] = []
    handle = None
    for place, block in enumerate(fields.objects(content.get("parts"), f"{where}.parts")):
        at = f"{where}.parts[{place}]"
        handle = _number_of(block.get("thoughtSignature")) if handle is None else handle
        if "functionCall" in block:
            call = fields.mapping(block["functionCall"], f"{at}.functionCall")
            number = fields.text(call.get("id"), f"{at}.functionCall.id", default="") or f"call-{unnamed + len(calls)}"
            name = fields.text(call.get("name"), f"{at}.functionCall.name")
            calls.append(HistoryCall(number, name, call.get("args") or {}))
        elif block.get("thought"):
            thoughts.append(fields.text(block.get("text"), f"{at}.text", default=""))
        else:
            texts.append(_part(block, at, refuses=False)[0])
    thinking = "\n".join(thoughts) if thoughts else None
    return HistoryMessage("assistant", "".join(texts), calls, thinking, handle=handle)


def _parts(answer: Answer, *, shows_thinking: bool) -> list[Mapping[str, Any]]:
    """Return an answer's parts. A call that can't be read is text: arguments must be an object."""
    signed = {"thoughtSignature": base64.b64encode(f"gw-{answer.number}".encode()).decode()}
    blocks: list[Mapping[str, Any]] = []
    if answer.thinking and shows_thinking:
        blocks.append({"text": answer.thinking, "thought": True})
    if answer.whole:
        blocks.append({"text": answer.whole, **signed})
    sound = [call for call in answer.calls if call.call is not None]
    blocks += [{"functionCall": {"id": one.id, "name": one.name, "args": object_of(one)}, **signed} for one in sound]
    return blocks or [{"text": ""}]


def _number_of(signature: Any) -> int | None:
    """Return the number of the answer with this signature; None for another one."""
    try:
        decoded = base64.b64decode(str(signature or ""), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    found = re.fullmatch(rb"gw-(\d{1,9})", decoded)
    return int(found[1]) if found else None
