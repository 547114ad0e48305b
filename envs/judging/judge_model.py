"""A judge by model: the verifier's sandbox gets a door by which test.sh asks a model, a bounded number of times.

    async with Bench(task.hidden.judge) as bench:
        ...                                   # a sandbox with the door `bench.door`; test.sh has `bench.env(address)`
        await bench.check()                   # raises InfraError if the model failed
        print(bench.words())

The door takes the requests of OpenAI's and Anthropic's clients. It puts in the run's model and key, bounds the replies,
and keeps questions and answers. The agent's sandbox has no such door. The code under test, in the verifier's, can use
it as test.sh does: with too many requests, or with one that the model's server can't deal with. So a request without
an answer is our failure only if a plain question of ours has none either, and requests are asked one at a time.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from aiohttp import web

from atropos_agent.engines.http import HttpClient, NoAnswer, Response
from atropos_agent.types import count_of
from envs.types import Failure, InfraError, JudgeModel
from sandboxes.shielding import stop
from tools.output import truncate

logger = logging.getLogger(__name__)

_PATHS: Mapping[str, tuple[str, str, str]] = {
    "chat/completions": ("max_completion_tokens", "max_tokens", "choices"),
    "responses": ("max_output_tokens", "max_output_tokens", "output"),
    "messages": ("max_tokens", "max_tokens", "content"),
}
"""The paths of requests below /v1, the fields that bound a reply (the one to set, and its other name), and the field
of an answer that holds the reply."""
_FORMS = [(path, name) for path, (*names, _) in _PATHS.items() for name in dict.fromkeys(names)]
_PASSED = ("anthropic-version", "anthropic-beta", "openai-beta")
"""Headers of a request that say how to read it."""
_BODY = 4 << 20
_PAUSES_S = (0.0, 1.0, 4.0, 15.0, 45.0)
"""The pauses before the tries of a request. Together they are longer than the minute of a usual limit of requests."""
_TRIES = 3
"""The tries of one that fails otherwise than by such a limit."""
_SILENT_S = 300.0
_PLAIN = "Reply with one word: yes."
"""A question that each model can answer, within `_PLAIN_S` seconds and `_PLAIN_TOKENS` tokens."""
_PLAIN_S = 15.0
_PLAIN_TOKENS = 16
_NONE = 0
"""The status of no answer."""
_SENSELESS = 1
"""The status of an answer without a reply, such as a proxy's page."""
_BUSY = 429
_NO_SUCH = frozenset({404, 405, 501})
_FAILED = frozenset({_NONE, _SENSELESS, 401, 402, 403, 404, 405, 408, 409, _BUSY})
_AWAY = frozenset({_NONE, 408, _BUSY})
_LEFT = "[not waited for]"
_SHOWN = 2000
"""Characters of a question and of an answer that are kept, their ends."""
_WORDS = 12_000
"""Characters of all of them in a verdict."""
_TOKEN = "judge"
"""The key in the sandbox."""


class JudgeRefuses(Exception):
    """The judge takes no question: a wrong address, key or name of its model."""


class Bench:
    """The judge of one verdict. failure: why the model could not be asked."""

    def __init__(self, model: JudgeModel) -> None:
        self.model = model
        self.failure: str | None = None
        self.refused = self.tokens = self._taken = 0
        self._exchanges: list[list[str]] = []  # questions, each with its answer as soon as there is one
        self._over = False
        self._alone = asyncio.Lock()
        self._asking: asyncio.Task[Any] | None = None
        self._doubts: set[asyncio.Task[None]] = set()
        headers = {"Authorization": f"Bearer {model.key}", "x-api-key": model.key} if model.key else {}
        self._client = HttpClient(model.url, headers=headers, timeout_s=_SILENT_S)
        self.door: Any = web.Server(self._handle, access_log=None, handler_cancellation=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._end()
        await stop(self._doubts)
        await self.door.shutdown(0)
        await self._client.aclose()

    @staticmethod
    def env(address: str) -> dict[str, str]:
        """Return the variables by which clients of models find the door."""
        openai, anthropic = f"http://{address}/v1", f"http://{address}"
        names = {"OPENAI_BASE_URL": openai, "OPENAI_API_BASE": openai, "OPENAI_API_KEY": _TOKEN}
        names |= {"ANTHROPIC_BASE_URL": anthropic, "ANTHROPIC_API_BASE": anthropic, "ANTHROPIC_API_KEY": _TOKEN}
        return {**names, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    async def check(self) -> None:
        """End the requests, and raise InfraError if the model failed."""
        await self._end()
        await asyncio.gather(*self._doubts)
        if self.failure is not None:
            raise InfraError(Failure.VERIFIER, f"the judge at {self.model.url} failed: {self.failure}")

    async def examine(self) -> None:
        """Ask a plain question before a run, if a model is known. One that is away or busy is named in the log. Raises
        JudgeRefuses if the answer is a refusal."""
        model = self.model.name or await self._listed(None)
        if model is None:
            return
        answer = await self._plain({"model": model})
        if answer.status_code in _AWAY or answer.status_code >= 500:
            logger.warning("the judge at %s does not answer now: %s", self.model.url, _why(answer))
        elif not _replied(answer):
            raise JudgeRefuses(f"the judge at {self.model.url} refuses a plain question: {_why(answer)}")

    @property
    def metrics(self) -> dict[str, float]:
        if not (self._exchanges or self.refused):
            return {}
        found = {"judge_requests": len(self._exchanges), "judge_refused": self.refused, "judge_tokens": self.tokens}
        return {name: float(value) for name, value in found.items()}

    def words(self) -> str:
        """Return the questions and answers, quoted: they are what others wrote."""
        words = "".join(
            f"\nQuestion {number} to the judge:\n{_quoted(question)}\nThe judge's answer:\n{_quoted(*answer or [''])}\n"
            for number, (question, *answer) in enumerate(self._exchanges, 1)
        )
        return truncate(words, _WORDS)

    async def _end(self) -> None:
        self._over = True
        if self._asking is not None:
            await stop({self._asking})

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.strip("/").removeprefix("v1/")
        if request.method != "POST" or path not in _PATHS:
            return _problem(404, f"the judge has no {request.method} {request.path}")
        try:
            content = await _body(request)
            self._bounded(json.loads(content), *_PATHS[path][:2])
        except (ValueError, RecursionError, TypeError, OverflowError) as error:
            return _problem(400, f"no request for a judge: {error}")
        if self._taken >= self.model.requests:
            self.refused += 1
            return _problem(429, f"this verdict's {self.model.requests} requests are used up")
        self._taken += 1
        headers = {name: request.headers[name] for name in _PASSED if name in request.headers}
        async with self._alone:
            self._asking = asyncio.current_task()
            try:
                given = json.loads(content)  # again: of those that wait, 4 MB may be 90 MB of Python's
                return await self._answer(_end_of(given), path, self._bounded(given, *_PATHS[path][:2]), headers)
            finally:
                self._asking = None

    async def _answer(
        self, question: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str]
    ) -> web.StreamResponse:
        """Return the model's answer as test.sh gets it, and note both."""
        if self._over or self.failure is not None:
            return _problem(503, "the judge failed" if self.failure else "the verdict is made")
        exchange = [question]
        self._exchanges.append(exchange)
        try:
            answer = await self._ask(path, body, headers)
        except asyncio.CancelledError:  # it was not waited for
            exchange.append(_LEFT)
            self._doubts.add(asyncio.create_task(self._doubt(body)))
            raise
        if self.failure is not None:
            exchange.append(f"[{_why(answer)}]")
            return _problem(503, "the judge failed")
        if _failed(answer):
            exchange.append(f"[{_why(answer)}]")
            return _problem(400, f"the judge answers a plain question, and this one with {_why(answer)}")
        exchange.append(_text_of(answer.content) if _replied(answer) else f"[{_why(answer)}]")
        self.tokens += _tokens_of(answer.content)
        kind = answer.headers.get("Content-Type", "application/json")
        return web.Response(status=answer.status_code, body=answer.content, headers={"Content-Type": kind})

    def _bounded(self, body: Any, to_set: str, other: str) -> dict[str, Any]:
        """Return the body with the run's model and a bound on the reply. Raises ValueError, TypeError."""
        if not isinstance(body, dict):
            raise TypeError("the body is no JSON object")
        limits = [body[name] for name in (to_set, other) if body.get(name) is not None]
        least = min([self.model.tokens, *(int(one) for one in limits)])
        name = other if body.get(other) is not None else to_set
        kept = {key: value for key, value in body.items() if key not in (to_set, other, "n", "stream")}
        return {**kept, "model": self.model.name or body.get("model"), name: max(1, least)}

    async def _ask(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Response:
        """Return the model's answer: the last one, if the request failed each time. It is our failure if a plain
        question, asked after it, has no reply either; a refusal of this request alone is its sender's to deal with."""
        for tries, pause in enumerate(_PAUSES_S, 1):
            await asyncio.sleep(pause)
            answer = await self._post(path, body, headers)
            if _replied(answer):
                return answer
            plain = await self._plain(body)
            if not _failed(answer) and _replied(plain):
                return answer
            if tries >= _TRIES and _BUSY not in (answer.status_code, plain.status_code):
                break
        if not _replied(plain):
            self.failure = _why(plain)
        return answer

    async def _doubt(self, body: Mapping[str, Any]) -> None:
        """Note our failure if a plain question fails now. A limit of requests may be used up by this verdict's own, so
        a minute of silence comes first."""
        async with self._alone:
            for pause in _PAUSES_S:
                if self.failure is not None:
                    return
                await asyncio.sleep(pause)
                plain = await self._plain(body)
                if plain.status_code != _BUSY:
                    break
            if not _replied(plain):
                self.failure = _why(plain)

    async def _plain(self, body: Mapping[str, Any]) -> Response:
        """Ask a plain question by each protocol, until one answers. Nothing of it is the body's choice, unless neither
        the run names a model nor the server lists those that it has."""
        model = self.model.name or await self._listed(body.get("model"))
        failed: list[Response] = []
        for path, tokens in _FORMS:
            question = {"input": _PLAIN} if path == "responses" else {"messages": [{"role": "user", "content": _PLAIN}]}
            whole = {"model": model, **question, tokens: _PLAIN_TOKENS}
            answer = await self._post(path, whole, {"anthropic-version": "2023-06-01"}, _PLAIN_S)
            if _replied(answer):
                return answer
            failed.append(answer)
            if answer.status_code in (_NONE, _BUSY):
                break
        return next((one for one in failed if one.status_code not in _NO_SUCH), failed[0])

    async def _listed(self, requested: object) -> object:
        """Return the model that a request names, if the server has it or lists none; else the first that it lists."""
        try:
            found = (await self._client.get("/models", timeout=_PLAIN_S)).json()["data"]
            names = [str(one["id"]) for one in found]
        except (NoAnswer, ValueError, LookupError, TypeError):
            return requested
        return requested if requested in names or not names else names[0]

    async def _post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str], timeout: float | None = None
    ) -> Response:
        try:
            answer = await self._client.post(f"/{path}", json=body, headers=headers, timeout=timeout)
        except NoAnswer as error:
            return Response(_NONE, str(error).encode())
        if answer.status_code >= 400 or _replies(answer, _PATHS[path][2]):
            return answer
        return Response(_SENSELESS, f"HTTP {answer.status_code} without a reply: {answer.text[:_SHOWN]}".encode())


def _replies(answer: Response, field: str) -> bool:
    """Tell whether an answer is one of a protocol's: whether this field of it is a list."""
    try:
        found = answer.json()[field]
    except (ValueError, LookupError, TypeError):
        return False
    return isinstance(found, list) and (bool(found) or field != "choices")


def _replied(answer: Response) -> bool:
    return 200 <= answer.status_code < 300


def _failed(answer: Response) -> bool:
    """Tell whether the server failed at a request, which the same request may not do again."""
    return answer.status_code >= 500 or answer.status_code in _FAILED


def _why(answer: Response) -> str:
    text = answer.text[:300]
    return text if answer.status_code in (_NONE, _SENSELESS) else f"HTTP {answer.status_code}: {text}"


async def _body(request: web.BaseRequest) -> bytes:
    """Return a request's body, however it comes. `request.read` takes no more than a megabyte."""
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > _BODY:
            raise ValueError(f"more than {_BODY >> 20} MB")
    return bytes(body)


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
        answer = json.loads(content)
        for found in (answer.get("choices", [{}])[0].get("message", {}).get("content"), answer.get("content")):
            if found:
                return _ends(_flat(found))
        if answer.get("output"):
            return _ends(_flat([part for item in answer["output"] for part in item.get("content") or ()]))
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
            count_of(usage.get(name))
            for name in ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")
        )
    return 0


def _ends(text: str) -> str:
    return text if len(text) <= _SHOWN else f"[…]{text[-_SHOWN:]}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.splitlines())
