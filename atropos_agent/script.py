"""What an agent's code was told by its conversations, told again: so its work begins in the middle of a rollout.

A coroutine can't be copied. A branch runs an agent's code from the beginning, and its conversations return what they
returned before, one call after the other, without sampling or running anything, up to the place of the branch. Code
that asks for something else than before can't be branched: `Diverged`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from atropos_agent.types import AgentError, StopReason

Entry = tuple[str, Any, StopReason | None]
"""A method, its value, and why the conversation had ended behind it."""


class Diverged(AgentError):
    """An agent's code does not do again what it has done before a branch. Another attempt won't either."""


class Script:
    """The values of a conversation's methods, in order. entries: those to give again first."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries = list(entries)
        self._place = 0

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    @property
    def again(self) -> bool:
        """Tell whether values are given again."""
        return self._place < len(self._entries)

    def write(self, name: str, value: Any, ended: StopReason | None) -> None:
        """Note a new value."""
        self._entries.append((name, value, ended))
        self._place = len(self._entries)

    def next(self, name: str) -> tuple[Any, StopReason | None]:
        """Return the next earlier value. Raises Diverged if another method was called then."""
        known, value, ended = self._entries[self._place]
        if known != name:
            called, before = name.lstrip("_"), known.lstrip("_")
            raise Diverged(f"the agent called {called} where it called {before} before the branch")
        self._place += 1
        return value, ended

    def check(self) -> None:
        """Raise Diverged if not all earlier values were given again."""
        if self.again:
            raise Diverged("the agent's work ended before it came to the branch")


class Scripted:
    """A conversation with a script.

    ended: why it goes no further by itself; None while it does."""

    ended: StopReason | None
    script: Script


F = TypeVar("F", bound=Callable[..., Any])


def scripted(method: F) -> F:
    """Return a method of a `Scripted`, with its value in the script, and given again from it."""

    @wraps(method)
    def told(self: Scripted, *args: Any, **kwargs: Any) -> Any:
        if self.script.again:
            value, self.ended = self.script.next(method.__name__)
            return value
        value = method(self, *args, **kwargs)
        self.script.write(method.__name__, value, self.ended)
        return value

    @wraps(method)
    async def awaited(self: Scripted, *args: Any, **kwargs: Any) -> Any:
        if self.script.again:
            value, self.ended = self.script.next(method.__name__)
            return value
        value = await method(self, *args, **kwargs)
        self.script.write(method.__name__, value, self.ended)
        return value

    return cast(F, awaited if iscoroutinefunction(method) else told)
