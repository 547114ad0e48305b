"""Anthropic's Messages API as the model: messages in, text out, no token ids and so no rows.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ReasoningConfig

from atropos_agent.engines.chat import NOT_OPENAI, ChatServer, add_pause, refuse_redirect
from atropos_agent.engines.errors import ODD, EngineDown, NoCompletion, Refused, parse_error, refusal, shown
from atropos_agent.engines.http import HttpClient, NoAnswer, Response, split_address
from atropos_agent.tokens.chat import RAW
from atropos_agent.types import Message

VERSION = "2023-06-01"
_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""OpenAI's names of why a reply ended."""
MOST_TOKENS = 4096
"""Tokens of a reply without a limit of its own: the endpoint wants a number, and all of its models take this one."""


class HttpChatServer(ChatServer):
    """An endpoint for messages with another protocol than OpenAI's chat. A subclass defines `path`, `headers`,
    `request` and `read`."""

    path: str

    def __init__(self, config: APIServerConfig, reasoning_config: ReasoningConfig | None = None) -> None:
        super().__init__(config, reasoning_config)
        self.url, query = split_address(str(config.base_url), self.path.removeprefix("/v1"), "/v1")
        self.label = f"the endpoint at {self.url}"
        # The config in use has a key even without one.
        self.config = config
        self._http = HttpClient(self.url, timeout_s=config.timeout, query=query)

    @abstractmethod
    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""

    @abstractmethod
    def request(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body of a request for options in OpenAI's words."""

    @abstractmethod
    def read(self, answer: Any) -> Any:
        """Return an answer in the shape of OpenAI's completion. Raises AgentError for other answers."""

    def _all_headers(self) -> dict[str, str]:
        return {**self.headers(), **getattr(self.config, "headers", {})}

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
        await super().close()

    async def _send_once(self, options: dict[str, Any]) -> Any:
        try:
            response = await self._http.post(self.path, json=self.request(options), headers=self._all_headers())
        except NoAnswer as error:
            raise EngineDown(f"{self.label} did not answer: {error}") from error
        refuse_redirect(self.label, response.status_code, response.headers)
        if response.status_code != 200:
            failure = refusal(self.label, response.status_code, _error_text(response))
            raise add_pause(failure, response.status_code, response.headers)
        try:
            answer = response.json()
        except ValueError as error:
            raise NoCompletion(f"{self.label} answered with no JSON: {response.text[:200]}") from error
        return self.read(answer)

    async def _list_models(self) -> Sequence[str]:
        try:
            response = await self._http.get("/v1/models?limit=1000", headers=self._all_headers())
        except NoAnswer as error:
            raise EngineDown(f"{self.label} did not answer: {error}") from error
        if response.status_code in (401, 403):
            raise self._wrong_key_error(f"{self.label} answered {response.status_code}: {response.text[:300]}")
        try:
            return [str(model["id"]) for model in response.json()["data"]]
        except ODD:
            return []


class AnthropicServer(HttpChatServer):
    """An endpoint with Anthropic's Messages, such as https://api.anthropic.com."""

    path = "/v1/messages"
    _bearer = False
    """Whether the key goes where all others but Anthropic take it: so do some gateways, and vLLM."""

    def headers(self) -> dict[str, str]:
        key = self.config.api_key
        own = {"Authorization": f"Bearer {key}"} if self._bearer else {"X-Api-Key": str(key)}
        return {"Anthropic-Version": VERSION, **(own if key else {})}

    async def _send_once(self, options: dict[str, Any]) -> Any:
        try:
            return await super()._send_once(options)
        except Refused as error:
            if error.status not in (401, 403) or self._bearer or not self.config.api_key:
                raise
            self._bearer = True
            try:
                return await super()._send_once(options)
            except Refused as again:
                self._bearer = again.status not in (401, 403)
                raise again if self._bearer else error from again

    async def chat_completion(self, **options: Any) -> Any:
        return await super().chat_completion(**{"max_tokens": MOST_TOKENS, **options})

    def request(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return request(self.config.model_name, options)

    def read(self, answer: Any) -> Any:
        return read(answer, self.label)


def _error_text(response: Response) -> str:
    """Return the text of an answer that is an error, in the server's own words."""
    try:
        error = parse_error(response.json())
    except ValueError:
        error = None
    return response.text if error is None else error[1]


def request(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request for the `options`, which are in OpenAI's words."""
    messages: Sequence[Message] = options["messages"]
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    turns: list[Message] = []
    for message in messages:
        role, content = "assistant" if message["role"] == "assistant" else "user", _content(message)
        if message["role"] == "system" or not content:  # an empty message is refused
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] = _merge_content(turns[-1]["content"], content)
        else:
            turns.append({"role": role, "content": content})
    body: dict[str, Any] = {"model": model, "max_tokens": options.get("max_tokens") or MOST_TOKENS, "messages": turns}
    if "temperature" in options:
        body["temperature"] = min(1.0, options["temperature"])
    # Newer models refuse top_p beside the temperature, and all of them min_p; they say so, and it is left out.
    body |= {name: options[name] for name in ("top_p", *NOT_OPENAI) if options.get(name) is not None}
    if system:
        body["system"] = system
    if options.get("stop"):
        body["stop_sequences"] = list(options["stop"])
    if options.get("tools"):
        body["tools"] = [_tool(**tool["function"]) for tool in options["tools"]]
    return body


def _content(message: Message) -> str | list[dict[str, Any]]:
    """Return a message's content: text, or blocks if it has calls or results."""
    if RAW in message:
        return list(message[RAW])
    if message["role"] == "tool" and "tool_call_id" in message:
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}]
    if not message.get("tool_calls"):
        return str(message["content"])
    calls = [(call["id"], call["function"]) for call in message["tool_calls"]]
    blocks = [
        {"type": "tool_use", "id": name, "name": function["name"], "input": json.loads(function["arguments"])}
        for name, function in calls
    ]
    return [*_blocks(message["content"]), *blocks]


def _merge_content(one: str | list[dict[str, Any]], other: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if isinstance(one, str) and isinstance(other, str):
        return f"{one}\n\n{other}"
    return [*_blocks(one), *_blocks(other)]


def _blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return content


def _tool(name: str, parameters: Mapping[str, Any], description: str = "", **_: Any) -> dict[str, Any]:
    return {"name": name, "description": description, "input_schema": dict(parameters)}


def read(answer: Any, label: str) -> Any:
    """Return a message in the shape of OpenAI's completion. Raises NoCompletion for other answers."""
    try:
        blocks = answer["content"]
        text = "".join(block["text"] for block in blocks if block["type"] == "text")
        thinking = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
        calls = [
            SimpleNamespace(
                id=block["id"], function=SimpleNamespace(name=block["name"], arguments=json.dumps(block["input"]))
            )
            for block in blocks
            if block["type"] == "tool_use"
        ]
        reason, usage = str(answer["stop_reason"] or ""), _usage(answer.get("usage") or {})
    except ODD as error:
        raise NoCompletion(f"{label} answered with something that is no message: {shown(answer)}") from error
    message = SimpleNamespace(
        content=text, reasoning_content=thinking or None, tool_calls=calls, **({RAW: blocks} if calls else {})
    )
    return SimpleNamespace(
        choices=[SimpleNamespace(message=message, finish_reason=_REASONS.get(reason, reason))], usage=usage
    )


def _usage(usage: Mapping[str, Any]) -> Any:
    """Return usage in OpenAI's words; Anthropic counts the tokens of caches apart."""
    cached = int(usage.get("cache_read_input_tokens") or 0)
    read_in = int(usage.get("input_tokens") or 0) + int(usage.get("cache_creation_input_tokens") or 0) + cached
    details = SimpleNamespace(cached_tokens=cached)
    used = int(usage.get("output_tokens") or 0)
    return SimpleNamespace(prompt_tokens=read_in, completion_tokens=used, prompt_tokens_details=details)
