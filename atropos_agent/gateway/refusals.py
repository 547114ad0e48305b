"""Requests refused by name, because nothing here can honour them.

Tools run by a provider, servers called by a provider and contents fetched by it from an address are ways out of a
sandbox: they are refused in every form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atropos_agent.gateway import fields
from atropos_agent.gateway.fields import wrong
from atropos_agent.gateway.provider_tools import is_screen
from atropos_agent.gateway.requests import Refusal

PROVIDER = "is run by a provider, and here is none: give the agent a tool of its own, or switch it off"
_OF_PROVIDERS = (
    *("web_search_options", "web_search", "enable_search", "search_parameters", "plugins", "data_sources"),
    *("tool_resources", "connectors", "mcp_servers", "container"),
)
_CONTINUES = "no reply is begun for the model; leave it out, and another reply follows"
_SAYS = dict.fromkeys(_OF_PROVIDERS, PROVIDER) | {
    "logit_bias": "sampling is the rollout's own; leave it out",
    "functions": "is an old form: send tools",
    "function_call": "is an old form: send tool_choice",
    "logprobs": "logprobs are the rollout's own: its rows hold them",
    "top_logprobs": "logprobs are the rollout's own: its rows hold them",
    "echo": "is not served",
    "audio": "only text is served",
    "continue_final_message": _CONTINUES,
    "background": "only answers that are waited for are served",
    "conversation": "conversations are not kept by name: send the history",
    "prompt": "stored prompts are a provider's: send messages",
    "suffix": "is not served",
}
"""By field: why it is refused if it asks for anything."""
CHECKED = frozenset({*_SAYS, "n", "modalities"})
"""Fields of which `check` lets nothing pass that is not followed."""


def check(body: Mapping[str, Any]) -> None:
    """Raise Refusal for a request's fields that can't be honoured."""
    for name, why in _SAYS.items():
        value = body.get(name)
        # OpenAI's clients ask for a search by an empty object.
        if value not in (None, False, 0, {}, [], "") or (name == "web_search_options" and value == {}):
            raise wrong(name, why)
    if body.get("n") not in (None, 1):
        raise wrong("n", "there is one choice; ask several times for more")
    if any(one != "text" for one in fields.strings(body.get("modalities"), "modalities")):
        raise wrong("modalities", "only text is served")


def check_message(message: Mapping[str, Any], where: str) -> None:
    """Raise Refusal for fields of a message, beside its content, that can't be shown to the model."""
    if message.get("function_call"):
        raise wrong(f"{where}.function_call", "is an old form: send tool_calls")
    if message.get("audio"):
        raise wrong(f"{where}.audio", _SAYS["audio"])
    for name in ("prefix", "partial"):  # DeepSeek's, Mistral's and Moonshot's marks of a reply to continue
        if message.get(name):
            raise wrong(f"{where}.{name}", _CONTINUES)


def part(kind: Any, where: str) -> Refusal:
    """Return the refusal of a message's part that can't be shown to the model."""
    return wrong(where, f"{str(kind)[:60]!r} can't be shown to the model: only text can, and nothing by its address")


def tool(kind: Any, where: str) -> Refusal:
    """Return the refusal of a tool that is none of the agent's own."""
    why = "shows a screen, and only text can be shown to the model" if is_screen(str(kind)) else PROVIDER
    return wrong(where, f"a tool of type {str(kind)[:60]!r} {why}")
