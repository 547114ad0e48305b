"""What providers of hosted models say beside a reply: pauses, refused parameters, usage and its price."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from atropos_agent.tokens.chat import RETURNED
from atropos_agent.types import count_of
from sandboxes.plurals import plural

LONGEST_S = 300.0
"""The longest pause that is kept when a provider asks for one, in seconds."""
_MOST_DOLLARS = 1e6
"""No reply costs as much."""
OPTIONAL = ("top_p", "top_k", "min_p", "stop", "n", "include", "temperature")
"""Options of a request without which a model answers by its own default, in the order in which they are left out;
after them fields of its messages."""
_NAMES = {"stop": ("stop", "stop_sequences"), "include": ("include", "encrypted content")}
_REFUSALS = re.compile(
    r"not supported|unsupported|does not support|deprecated|cannot both|can't both|not allowed|not permitted|only the "
    r"default|may only be set|unrecognized|unknown (parameter|field|argument)|extra (inputs|fields)",
    re.IGNORECASE,
)
_FULL = re.compile(r"(prompt|input|messages)\b[^.]{0,40}\b(too long|resulted in)", re.IGNORECASE)
_NUMBER, _THOUSANDS = re.compile(r"\b\d{1,9}\b"), re.compile(r"(?<=\d),(?=\d{3}\b)")
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")
_SAID = re.compile(r"(\d+(?:\.\d+)?) ?(ms|[smh])")
_AGAIN = re.compile(r"try again in ((?:\d{1,9}(?:\.\d{1,9})? ?(?:ms|s|m(?!illi)|h)[a-z]{0,6} ?)+)", re.IGNORECASE)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RESETS = ("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens", "x-ratelimit-reset")


@dataclass(slots=True)
class Usage:
    """Requests and tokens of this process's life, as a provider counts them.

    input: all tokens of prompts, those read from a cache (`cached`) among them. cost: in US dollars; None if neither
    the provider nor the options name a price."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: float | None = None

    def add(self, usage: Any, prices: Sequence[float]) -> None:
        """Add a reply's. usage: OpenAI's, as an object. prices: of a million tokens of input and of output."""
        self.requests += 1
        details = getattr(usage, "prompt_tokens_details", None)
        counts = [count_of(getattr(usage, name, None)) for name in ("prompt_tokens", "completion_tokens")]
        self.input, self.output = self.input + counts[0], self.output + counts[1]
        self.cached += count_of(getattr(details, "cached_tokens", None))
        reported: Any = getattr(usage, "cost", None)  # some gateways name it
        known = prices and any(counts)
        price = sum(count * one / 1e6 for count, one in zip(counts, prices, strict=True)) if known else None
        named = type(reported) in (int, float) and 0 <= reported < _MOST_DOLLARS
        if (cost := reported if named else price) is not None:
            self.cost = (self.cost or 0.0) + cost

    def __str__(self) -> str:
        if not (self.input or self.output):
            return f"{plural(self.requests, 'request')}, whose tokens the endpoint does not report"
        cached = f" ({self.cached:,} cached)" if self.cached else ""
        cost = "" if self.cost is None else f", ${self.cost:.2f}"
        return (
            f"{plural(self.requests, 'request')}, {self.input:,} input{cached} and {self.output:,} output tokens{cost}"
        )


def usage_of(servers: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the usage of hosted models among these servers: an entry each, with the options that it did not take."""
    hosted = [server for server in servers if isinstance(getattr(server, "usage", None), Usage)]
    return [
        {"model": server.config.model_name, **asdict(server.usage), "left_out": list(server.left_out)}
        for server in hosted
        if server.usage.requests
    ]


def refused_option(text: str, options: Mapping[str, Any]) -> str | None:
    """Return the option of a request that a model does not take, as an error's text names it; None if it names none.

    options: the request's by OpenAI's names."""
    if not _REFUSALS.search(text):
        return None
    for name in (*OPTIONAL, *RETURNED):
        words = "|".join(map(re.escape, _NAMES.get(name, (name,))))
        if name in options and re.search(rf"(?<![\w-])({words})(?![\w-])", text, re.IGNORECASE):
            return name
    return None


def room_left(text: str, max_tokens: int) -> int:
    """Return the tokens of room after a prompt, as the refusal of a prompt with a reply of `max_tokens` names window
    and prompt, or half as much where it does not; 0 for a prompt without any."""
    if _FULL.search(text):
        return 0
    numbers = {int(number) for number in _NUMBER.findall(_THOUSANDS.sub("", text))} - {max_tokens}
    sizes = sorted(numbers - {number + max_tokens for number in numbers})[-2:]  # of the prompt and of the window
    left = sizes[1] - sizes[0] if len(sizes) == 2 else max_tokens
    return left if left < max_tokens else max_tokens // 2


def pause_s(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a provider's headers ask to wait before another try; None if they name none.

    `Retry-After` (seconds or a date) and `retry-after-ms` come first; else the latest of the limits that are used up,
    as `x-ratelimit-reset-*` (OpenAI: 6m0s, others: seconds) and `anthropic-ratelimit-*-reset` (RFC 3339) name it."""
    values = {name.lower(): value.strip() for name, value in headers.items()}
    now = now or datetime.now(UTC)
    first = _number(values.get("retry-after-ms"))
    waits = [None if first is None else first / 1000, _seconds_until(values.get("retry-after"), now)]
    if (wait := next((one for one in waits if one is not None), None)) is None:
        spent = [name for name in values if name.endswith(("-reset", *_RESETS)) or name in _RESETS]
        left = [
            _seconds_until(values[name], now)
            for name in spent
            if values.get(name.replace("reset", "remaining"), "0") == "0"
        ]
        wait = max((one for one in left if one is not None), default=None)
    return None if wait is None else min(max(wait, 0.0), LONGEST_S)


def pause_in(text: str) -> float | None:
    """Return the seconds until another try that an error's text names: OpenAI's "1m30.5s", LiteLLM's "5 seconds"."""
    found = _AGAIN.search(text)
    parts = [] if found is None else _SAID.findall(found[1])
    return min(sum(float(count) * _SECONDS[unit] for count, unit in parts), LONGEST_S) if parts else None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None or math.isnan(found := float(text)) else found
    except ValueError:
        return None


def _seconds_until(text: str | None, now: datetime) -> float | None:
    """Return the seconds until a moment: a number of seconds, a duration, a date of HTTP's or of RFC 3339."""
    if text is None or (seconds := _number(text)) is not None:
        return None if text is None else seconds
    if parts := _PARTS.findall(text) if _PARTS.sub("", text) == "" else []:
        return sum(float(count) * _SECONDS[unit] for count, unit in parts)
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text)
        except (ValueError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return None
