"""A Python function as the model: messages in, text out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from atropos_agent.engines.chat import ChatServer
from atropos_agent.types import EngineError
from envs.options import EngineConfig
from sandboxes.shielding import call_in_thread


def function_server(function: Callable[..., Any]) -> Callable[..., FunctionServer]:
    """Return the maker of a server for a model made of a function of the chat messages, sync or async."""

    def make(config: EngineConfig, reasoning_config: Any = None) -> FunctionServer:
        return FunctionServer(function, config)

    return make


class FunctionServer(ChatServer):
    """A function as a model: of chat messages, it returns the reply's text. There are no ids, and so no rows."""

    takes_tools = False

    def __init__(self, function: Callable[..., Any], config: EngineConfig) -> None:
        super().__init__(config)
        self._function = function

    async def connect(self) -> None:
        """Do nothing: a function is there."""

    async def chat_completion(self, **options: Any) -> SimpleNamespace:
        """Return the function's reply in OpenAI's shape. Raises EngineError for anything but text."""
        messages = [dict(message) for message in options["messages"]]
        text: Any
        if inspect.iscoroutinefunction(self._function):
            text = await self._function(messages)
        else:  # it may wait
            text = await call_in_thread(lambda: self._function(messages))
            text = await text if inspect.isawaitable(text) else text
        if not isinstance(text, str):
            name = getattr(self._function, "__name__", "the model")
            raise EngineError(f"{name} returned a {type(text).__name__}; a model returns a text")
        self.sampled += 1
        message = SimpleNamespace(content=text)
        return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")], usage=None)
