"""Anthropic's Messages API as the model: messages in, text out, no token ids and so no rows.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ReasoningConfig

from atropos_agent.engines.chat import NOT_OPENAI, ChatServer
from atropos_agent.engines.errors import EngineDown, OddAnswer, refusal, said_error
from atropos_agent.engines.http import HttpClient, NoAnswer, Response
from atropos_agent.types import Message

VERSION = "2023-06-01"
_REASONS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "refusal": "content_filter"}
"""OpenAI's names of why a reply ended."""
MOST_TOKENS = 4096
"""Tokens of a reply without a limit of its own: the endpoint wants a number, and all of its models take this one."""


class AnthropicServer(ChatServer):
    """An endpoint with Anthropic's Messages, such as https://api.anthropic.com."""

    def __init__(self, config: APIServerConfig, reasoning_config: ReasoningConfig | None = None) -> None:
        super().__init__(config, reasoning_config)
        self.url = str(config.base_url).rstrip("/").removesuffix("/v1")
        self.label = f"the endpoint at {self.url}"
        headers = {"x-api-key": str(config.api_key or ""), "anthropic-version": VERSION}
        self._http = HttpClient(self.url, headers=headers, timeout_s=config.timeout)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
        await super().close()

    async def _once(self, options: dict[str, Any]) -> Any:
        try:
            response = await self._http.post("/v1/messages", json=request(self.config.model_name, options))
        except NoAnswer as error:
            raise EngineDown(f"{self.label} did not answer: {error}") from error
        if response.status_code != 200:
            raise refusal(self.label, response.status_code, _said(response))
        try:
            answer = response.json()
        except ValueError as error:
            raise OddAnswer(f"{self.label} answered with no JSON: {error}") from error
        return read(answer, self.label)

    async def _served(self) -> Sequence[str]:
        try:
            response = await self._http.get("/v1/models?limit=1000")
        except NoAnswer as error:
            raise EngineDown(f"{self.label} did not answer: {error}") from error
        if response.status_code in (401, 403):
            raise self._wrong_key(f"{self.label} answered {response.status_code}: {response.text[:300]}")
        try:
            return [str(model["id"]) for model in response.json()["data"]]
        except (ValueError, KeyError, TypeError):
            return []


def _said(response: Response) -> str:
    """Return the text of an answer that is an error, in the server's own words."""
    try:
        said = said_error(response.json())
    except ValueError:
        said = None
    return response.text if said is None else said[1]


def request(model: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request for the `options`, which are in OpenAI's words."""
    messages: Sequence[Message] = options["messages"]
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    said: list[Message] = []
    for message in messages:
        if message["role"] == "system":
            continue
        role = "assistant" if message["role"] == "assistant" else "user"
        if said and said[-1]["role"] == role:
            said[-1]["content"] += f"\n\n{message['content']}"
        else:
            said.append({"role": role, "content": message["content"]})
    body: dict[str, Any] = {"model": model, "max_tokens": options.get("max_tokens") or MOST_TOKENS, "messages": said}
    # Newer models refuse the two together.
    if "temperature" in options:
        body["temperature"] = min(1.0, options["temperature"])
    # It has no min_p, and says so.
    body |= {name: options[name] for name in NOT_OPENAI if options.get(name) is not None}
    if system:
        body["system"] = system
    if options.get("stop"):
        body["stop_sequences"] = list(options["stop"])
    return body


def read(answer: Any, label: str) -> Any:
    """Return a message in the shape of OpenAI's completion. Raises OddAnswer for other answers."""
    try:
        text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
        thinking = "".join(block["thinking"] for block in answer["content"] if block["type"] == "thinking")
        reason, used = str(answer["stop_reason"]), int(answer["usage"]["output_tokens"])
    except (KeyError, TypeError, ValueError) as error:
        raise OddAnswer(f"{label} answered with something that is no message: {str(answer)[:200]}") from error
    message = SimpleNamespace(content=text, reasoning_content=thinking or None)
    choice = SimpleNamespace(message=message, finish_reason=_REASONS.get(reason, reason))
    return SimpleNamespace(choices=[choice], usage=SimpleNamespace(completion_tokens=used))
