"""A judge by model: the verifier's sandbox gets a door by which test.sh asks a model, a bounded number of times.

    async with Bench(task.hidden.judge) as bench:
        ...                                   # a sandbox with the door `bench.door`; test.sh has `bench.env(address)`
        bench.check(timed_out)                # raises InfraError if the model failed
        print(bench.words())

The door takes the requests of OpenAI's and Anthropic's clients. It puts in the run's model and key, bounds the replies,
and keeps questions and answers. The agent's sandbox has no such door. The code under test, in the verifier's, can use
it as test.sh does: so a request of too many, or a wrong one, is no failure of the model's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

from atropos_agent.engines.http import HttpClient, NoAnswer, Response
from envs.types import Failure, InfraError, JudgeModel
from sandboxes.base import Door
from tools.output import bounded

_PATHS: Mapping[str, tuple[str, str]] = {
    "chat/completions": ("max_completion_tokens", "max_tokens"),
    "responses": ("max_output_tokens", "max_output_tokens"),
    "messages": ("max_tokens", "max_tokens"),
}
"""The paths of requests below /v1, and the fields that bound a reply: the one to set, and its other name."""
_PASSED = ("anthropic-version", "anthropic-beta", "openai-beta")
"""Headers of a request that say how to read it."""
_BODY = 4 << 20
_TRIES = 3
_WAIT_S = 1.0
_SILENT_S = 300.0
_SLOW_S = 30.0
"""An unfinished request is the model's failure if it has waited so long."""
_OURS = frozenset({401, 403, 404, 408, 409, 429})
_SHOWN = 2000
"""Characters of a question and of an answer that are kept, their ends."""
_WORDS = 12_000
"""Characters of all of them in a verdict."""
_TOKEN = "judge"
"""The key in the sandbox."""


@dataclass(slots=True)
class _Exchange:
    """A question and its answer, as texts. began: when, by the monotonic clock."""

    question: str
    began: float
    answer: str | None = None


@dataclass(slots=True)
class Bench:
    """The judge of one verdict. failure: why the model could not be asked."""

    model: JudgeModel
    failure: str | None = None
    refused: int = 0
    tokens: int = 0
    _exchanges: list[_Exchange] = field(default_factory=list)
    _client: HttpClient | None = None
    _server: Any = None

    async def __aenter__(self) -> Self:
        key = self.model.key
        headers = {"Authorization": f"Bearer {key}", "x-api-key": key} if key else {}
        self._client = HttpClient(self.model.url, headers=headers, timeout_s=_SILENT_S)
        self._server = web.Server(self._handle, access_log=None)
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None and self._client is not None  # noqa: S101 - entered
        await self._server.shutdown(0)
        await self._client.aclose()

    @property
    def door(self) -> Door:
        """Return the door for the sandbox."""
        assert self._server is not None  # noqa: S101 - entered
        door: Door = self._server
        return door

    @staticmethod
    def env(address: str) -> dict[str, str]:
        """Return the variables by which clients of models find the door."""
        openai, anthropic = f"http://{address}/v1", f"http://{address}"
        names = {"OPENAI_BASE_URL": openai, "OPENAI_API_BASE": openai, "OPENAI_API_KEY": _TOKEN}
        names |= {"ANTHROPIC_BASE_URL": anthropic, "ANTHROPIC_API_BASE": anthropic, "ANTHROPIC_API_KEY": _TOKEN}
        return {**names, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def check(self, *, timed_out: bool) -> None:
        """Raise InfraError if the model failed, or was still asked when the tests were out of time."""
        late = [one for one in self._exchanges if one.answer is None and time.monotonic() - one.began > _SLOW_S]
        if self.failure is None and timed_out and late:
            self.failure = f"it did not answer within the time of the tests, nor within {_SLOW_S:.0f} s"
        if self.failure is not None:
            raise InfraError(Failure.VERIFIER, f"the judge at {self.model.url} failed: {self.failure}")

    @property
    def metrics(self) -> dict[str, float]:
        if not (self._exchanges or self.refused):
            return {}
        found = {"judge_requests": len(self._exchanges), "judge_refused": self.refused, "judge_tokens": self.tokens}
        return {name: float(value) for name, value in found.items()}

    def words(self) -> str:
        """Return the questions and answers, quoted: they are what others wrote."""
        words = "".join(
            f"\nQuestion {number} to the judge:\n{_quoted(one.question)}\n"
            f"The judge's answer:\n{_quoted(one.answer or '')}\n"
            for number, one in enumerate(self._exchanges, 1)
        )
        return bounded(words, _WORDS)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.strip("/").removeprefix("v1/")
        if request.method != "POST" or path not in _PATHS:
            return _problem(404, f"the judge has no {request.method} {request.path}")
        try:
            asked = json.loads(
                await request.content.read(_BODY) if request.content_length is None else await _body(request)
            )
            body = self._bounded(asked, *_PATHS[path])
        except (ValueError, RecursionError, TypeError) as error:
            return _problem(400, f"no request for a judge: {error}")
        if len(self._exchanges) >= self.model.requests:
            self.refused += 1
            return _problem(429, f"this verdict's {self.model.requests} requests are used up")
        exchange = _Exchange(_end_of(asked), time.monotonic())
        self._exchanges.append(exchange)
        try:
            headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
            answer = await self._ask(path, body, headers)
        except asyncio.CancelledError:
            if time.monotonic() - exchange.began > _SLOW_S:
                self.failure = f"it did not answer within {time.monotonic() - exchange.began:.0f} s"
            raise
        if answer is None:
            return _problem(503, "the judge failed")
        exchange.answer = _text_of(answer.content)
        self.tokens += _tokens_of(answer.content)
        kind = answer.headers.get("Content-Type", "application/json")
        return web.Response(status=answer.status_code, body=answer.content, headers={"Content-Type": kind})

    def _bounded(self, body: Any, to_set: str, other: str) -> dict[str, Any]:
        """Return the body with the run's model and a bound on the reply. Raises ValueError, TypeError."""
        if not isinstance(body, dict):
            raise TypeError("the body is no JSON object")
        asked = [body[name] for name in (to_set, other) if body.get(name) is not None]
        least = min([self.model.tokens, *(int(one) for one in asked)])
        name = other if body.get(other) is not None else to_set
        kept = {key: value for key, value in body.items() if key not in (to_set, other, "n", "stream")}
        return {**kept, "model": self.model.name or body.get("model"), name: max(1, least)}

    async def _ask(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Response | None:
        """Return the model's answer; None if it failed each time, which is noted."""
        assert self._client is not None  # noqa: S101 - entered
        why = ""
        for attempt in range(_TRIES):
            await asyncio.sleep(attempt * _WAIT_S)
            try:
                answer = await self._client.post(f"/{path}", json=body, headers=headers)
            except NoAnswer as error:
                why = str(error)
                continue
            if answer.status_code < 500 and answer.status_code not in _OURS:
                return answer
            why = f"HTTP {answer.status_code}: {answer.text[:300]}"
        self.failure = why
        return None


async def _body(request: web.BaseRequest) -> bytes:
    if (request.content_length or 0) > _BODY:
        raise ValueError(f"more than {_BODY >> 20} MB")
    return await request.read()


def _problem(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "judge"}}, status=status)


def _end_of(body: Mapping[str, Any]) -> str:
    """Return the end of a question."""
    messages = body.get("messages", body.get("input", ""))
    last = messages[-1] if isinstance(messages, list) and messages else messages
    return _ends(_flat(last.get("content", "") if isinstance(last, dict) else last))


def _text_of(content: bytes) -> str:
    """Return the text of an answer, in whichever protocol."""
    with suppress(ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        said = json.loads(content)
        for found in (said.get("choices", [{}])[0].get("message", {}).get("content"), said.get("content")):
            if found:
                return _ends(_flat(found))
        if said.get("output"):
            return _ends(_flat([part for item in said["output"] for part in item.get("content") or ()]))
    return _ends(content.decode(errors="replace"))


def _flat(content: object) -> str:
    """Return the text of a message's content."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return str(content)


def _tokens_of(content: bytes) -> int:
    with suppress(ValueError, TypeError, AttributeError, RecursionError):
        usage = json.loads(content).get("usage") or {}
        return sum(
            int(usage.get(name) or 0)
            for name in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
        )
    return 0


def _ends(text: str) -> str:
    return text if len(text) <= _SHOWN else f"[…]{text[-_SHOWN:]}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
