"""OpenAI's Responses API as the model: messages in, text and calls out, no token ids and so no rows.

Nothing is stored at the provider: reasoning comes back encrypted, and is sent with the next request.
Source: https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from atropos_agent.engines.anthropic import HttpChatServer
from atropos_agent.engines.errors import ODD, NoCompletion, parse_error, refusal, shown
from atropos_agent.tokens.chat import RAW
from atropos_agent.types import Message

_AS_THEY_ARE = ("temperature", "top_p", "top_k", "min_p", "stop", "include")


class ResponsesServer(HttpChatServer):
    """An endpoint with OpenAI's Responses, such as https://api.openai.com/v1."""

    path = "/v1/responses"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.config.api_key}"} if self.config.api_key else {}

    def request(self, options: Mapping[str, Any]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.config.model_name,
            "input": [item for message in options["messages"] for item in _items(message)],
            "store": False,
            "stream": False,  # `transformers serve` streams unless it is told not to
            **{name: options[name] for name in _AS_THEY_ARE if name in options},
        }
        if options.get("max_tokens"):
            body["max_output_tokens"] = options["max_tokens"]
        if options.get("tools"):
            body["tools"] = [{"type": "function", "strict": False, **tool["function"]} for tool in options["tools"]]
        return body

    def read(self, answer: Any) -> Any:
        if (failure := parse_error(answer)) is not None:
            raise refusal(self.label, *failure)
        try:
            return _completion(answer)
        except ODD as error:
            raise NoCompletion(f"{self.label} answered with something that is no response: {shown(answer)}") from error

    async def chat_completion(self, **options: Any) -> Any:
        return await super().chat_completion(include=["reasoning.encrypted_content"], **options)


def _items(message: Message) -> Iterator[dict[str, Any]]:
    """Yield a message as items of an input."""
    if RAW in message:
        yield from message[RAW]
        return
    if message["role"] == "tool" and "tool_call_id" in message:
        yield {"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}
        return
    role = "user" if message["role"] == "tool" else message["role"]
    if message.get("content"):
        yield {"role": role, "content": message["content"]}
    for call in message.get("tool_calls") or ():
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}


def _completion(answer: Any) -> Any:
    """Return a response in the shape of OpenAI's chat completion."""
    output = answer["output"]
    parts = [part for item in output if item["type"] == "message" for part in item["content"]]
    thoughts = [part for item in output if item["type"] == "reasoning" for part in item.get("summary") or ()]
    calls = [
        SimpleNamespace(id=item["call_id"], function=SimpleNamespace(name=item["name"], arguments=item["arguments"]))
        for item in output
        if item["type"] == "function_call"
    ]
    status = answer.get("status", "completed")
    why = (answer.get("incomplete_details") or {}).get("reason") or status
    reason = {"max_output_tokens": "length", "completed": "tool_calls" if calls else "stop"}.get(why, str(why))
    if any(part["type"] == "refusal" for part in parts):
        reason = "content_filter"
    message = SimpleNamespace(
        content="".join(part["text"] for part in parts if part["type"] == "output_text"),
        reasoning_content="\n".join(part["text"] for part in thoughts) or None,
        tool_calls=calls,
        # Reasoning with nothing after it is refused.
        **({RAW: output} if any(item["type"] != "reasoning" for item in output) else {}),
    )
    usage = answer.get("usage") or {}
    details = SimpleNamespace(cached_tokens=(usage.get("input_tokens_details") or {}).get("cached_tokens", 0))
    reported = SimpleNamespace(
        prompt_tokens=usage.get("input_tokens", 0),
        completion_tokens=usage.get("output_tokens", 0),
        prompt_tokens_details=details,
        cost=usage.get("cost"),
    )
    return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason=reason)], usage=reported)
