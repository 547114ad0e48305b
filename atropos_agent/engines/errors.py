"""The meaning of an inference server's errors: passing ones, permanent ones, and those of too long prompts."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable
from typing import Any

from atropos_agent.types import AgentError, EngineError, count_of

RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which another try may succeed; so do those over 505, which proxies have of their own."""

MAY_BE_TOO_LONG = frozenset({400, 413, 422, 500})
"""Statuses of inference servers for a too long prompt: 500 if the error comes from their depth."""

_TOO_LONG = re.compile(
    r"context (length|window|size|limit)|max_model_len|(maximum|max) (model|sequence|input) length"
    r"|model's (maximum )?length|(prompt|input|sequence|tokens)\b[^.]{0,80}\btoo long|too many (input |prompt )?tokens",
    re.IGNORECASE,
)
"""Their words for it."""

_READ = 20_000
"""Characters of an error that are read: an answer may have 256 MB of them, and a pattern takes minutes for these."""

ODD = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions from reading an answer that is not of its protocol. JSON numbers may be infinite or without bound, and
lists nested as deeply as the stack."""

_STATUS = re.compile(r"[45]\d\d", re.ASCII)
_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxdict, _SHORT.maxstring, _SHORT.maxother = 8, 20, 210, 200


class ContextOverflow(AgentError):
    """The prompt and the reply do not fit the inference server's context window."""


class EngineDown(EngineError):
    """The inference server did not answer, or can't now; the same request may succeed later or on another."""

    passing = True
    pause_s: float | None = None
    """The pause in seconds that the server asks for; None without one."""
    limited = False
    """Whether the server limits the rate of requests."""


class OddAnswer(EngineDown):
    """The inference server answered with an error of its own or with something that is no completion.

    It may pass, or be this request's or the server's for good: see `CompletionsServer.settle_error`.
    broken: the server itself reports that it failed, or that it lacks something it had.
    """

    def __init__(self, message: str, *, broken: bool = False) -> None:
        super().__init__(message)
        self.broken = broken


class NoCompletion(OddAnswer):
    """The answer is none of the protocol's: a page of HTML, for example. At the start another program gave it."""


class ModelNotServed(EngineError):
    """The inference server answers, but serves other models than the requested one."""


class Refused(EngineError):
    """The inference server refuses the request, and will again: it is wrong, or not allowed.

    status: HTTP's, if one was named."""

    def __init__(self, message: str, *, status: int | None = None, **more: Any) -> None:
        super().__init__(message, **more)
        self.status = status


class NotThisServer(Refused):
    """The answering program is no inference server that we can use with these options, and will not become one."""


def startup_error(label: str, status: int, text: str, path: str, location: str = "") -> EngineError | None:
    """Return the exception for an answer at the start that is an error: NotThisServer if only the user can mend it.

    path: of the request. location: the address that a redirection names."""
    if status in (401, 403):
        return NotThisServer(f"{label} refuses us ({status}: {text[:200]}); set --openai.api_key to its key")
    if 300 <= status < 500 and status not in RETRIED:
        onward = f" and points to {location}" if location else ""
        return NotThisServer(
            f"{label} answers {path} with {status}{onward}, so it is another program or another protocol; "
            "set --openai.base_url to an inference server's address, such as http://HOST:PORT/v1, or "
            "--openai.server_type to what it speaks"
        )
    return EngineError(f"{label} can't answer now ({status}: {text[:200]})") if status >= 400 else None


def refusal(label: str, status: int | None, text: str, *, known: bool = False) -> AgentError:
    """Return the exception for an answer that is an error: it tells whether another try may succeed.

    label: the server's name in messages. status: HTTP's, or the one in the answer's body; None if it names none.
    known: whether the server has answered such a request before. It may find a thing again that it finds no more: it
    was restarted and has not loaded its adapter yet, or something else answers in its place."""
    text = text[:_READ]
    message = f"{label} answered {'with an error' if status is None else status}: {text[:300]}"
    if "is out of vocabulary" in text:  # vLLM's words
        message += "; the tokenizer has more tokens than the model: set --env.tokenizer_name to the model's own"
    if status == 404 and known:
        what = f"{message}; it did serve that before, so it is waited for: load the model or adapter again"
        return OddAnswer(what, broken=True)
    if (status is None or status in MAY_BE_TOO_LONG) and _TOO_LONG.search(text):
        return ContextOverflow(message)
    if status is None:
        return OddAnswer(message)
    if status == 500:
        return OddAnswer(message, broken=True)
    return EngineDown(message) if status in RETRIED or status > 505 else Refused(message, status=status)


def parse_error(body: Any) -> tuple[int | None, str] | None:
    """Return the status, if any, and the text of an answer's body that is an error, whatever HTTP says; else None."""
    if not isinstance(body, dict):
        return None
    error = body.get("error") or (body if body.get("object") == "error" else None) or body.get("detail")
    if not error:
        return None
    message = (error.get("message") or error) if isinstance(error, dict) else error
    text = message if isinstance(message, str) else shown(message)
    parts = [part for part in (error, body) if isinstance(part, dict)]
    codes = [part.get(name) for part in parts for name in ("code", "status_code")]
    found = [_STATUS.fullmatch(str(code)) for code in codes if isinstance(code, int | str)]
    status = next((int(code[0]) for code in found if code is not None), None)
    return status, text


def shown(value: Any) -> str:
    """Return the beginning of a value from an answer, for messages: it may be deep or long."""
    return _SHORT.repr(value[:200] if isinstance(value, str) else value)[:200]


def count_or_zero(count: Callable[[Any], int], body: Any) -> int:
    """Return how many tokens an answer holds; 0 if it is too odd to tell."""
    try:
        return count_of(count(body))
    except ODD:
        return 0
