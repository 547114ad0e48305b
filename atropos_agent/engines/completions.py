"""Talk to inference servers: token ids in, sampled ids and their logprobs out.

atroposlib's own `VLLMServer` posts to `/generate`, which stock vLLM does not have, tries every
request three times whatever the error, hides the cause, and waits for ever for an inference server that
does not answer. `CompletionsServer` speaks the protocol of `vllm serve` and replaces that
behaviour in this one place.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ReasoningConfig
from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception, stop_after_attempt

from atropos_agent.engines.errors import (
    ContextOverflow,
    EngineDown,
    ModelNotServed,
    OddAnswer,
    counted,
    refusal,
    said_error,
)
from atropos_agent.engines.http import HttpClient, NoAnswer
from atropos_agent.engines.replies import check_ended, sound
from atropos_agent.engines.token_server import TokenServer
from atropos_agent.engines.versions import version_of
from atropos_agent.types import AgentError, EngineError, TokenMismatch

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LOAD_METRICS = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_preemptions_total")


class Answer(tuple[list[int], list[list[int]], list[list[float]], list[str]]):
    """The four values that atroposlib expects: prompt ids, and per reply ids, logprobs, finish reason.

    versions: per reply, that of the oldest weights that had a part in it; None where the inference server
        does not say.
    """

    versions: list[int | None]


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that a server works on, that wait in it, and that it has ever put back for lack of memory."""

    running: float
    waiting: float
    preempted: float


class CompletionsServer(TokenServer):
    """An inference server that speaks vLLM's `/v1/completions` with token ids in both directions.

    Source: vllm/entrypoints/openai/completion/protocol.py (`return_token_ids`, `logprobs`).
    """

    attempts = 4
    """Times that a request is sent before its error is raised, and an odd answer taken before it is looked into."""
    question_s = 150.0
    """Seconds in which a question beside sampling is asked again while it is not answered."""
    probe_s = 20.0
    """Seconds without an answer after which the server is asked whether it lives."""
    alive_s = 30.0
    """Seconds that that answer may take."""
    adapter_s = 2.0
    """Seconds for which it is believed which adapter is served."""

    def __init__(self, config: APIServerConfig, reasoning_config: ReasoningConfig | None = None) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        self.url = str(config.base_url).rstrip("/").removesuffix("/v1")
        self.initialized = True  # no health-check task: a request finds out by itself
        self.max_model_len: int | None = None
        """Context window in tokens, known after `connect`."""
        self.root: str | None = None
        """The model's folder or name as the inference server loaded it, an adapter's base; known after `connect`."""
        self._is_adapter = False
        self._adapter: tuple[float, int | None] = (-math.inf, None)
        """When the served adapter was last asked for (`time.monotonic`), and its version then."""
        self.longest = 0
        """Prompt and reply together, in tokens, of the longest request that it ever took."""
        self.in_flight = 0
        self.sampled = 0
        """Tokens that it has ever sampled for us."""
        self.sick_until = 0.0
        """Until when (`time.monotonic`) no request should be sent, because the last ones failed."""
        self._failures = 0
        self._http: HttpClient | None = None

    @property
    def label(self) -> str:
        """Return how messages call it."""
        return f"the inference server at {self.url}"

    async def connect(self) -> None:
        """Ask the inference server what it serves. Raises EngineError with the remedy."""
        try:
            response = await self._client().get("/v1/models", timeout=5.0)
            response.raise_for_status()
            served = {str(model["id"]): model for model in response.json()["data"]}
        except (NoAnswer, ValueError, KeyError, TypeError) as error:
            raise EngineError(
                f"no inference server answers at {self.url} ({_cause(error)}); "
                "start `vllm serve MODEL` there or set --openai.base_url"
            ) from error
        if self.config.model_name in ("default", "", None) and len(served) == 1:
            self.config.model_name = next(iter(served))
        if self.config.model_name not in served:
            raise ModelNotServed(
                f"{self.label} does not serve {self.config.model_name!r}; "
                f"set --openai.model_name to one of {', '.join(served)}"
            )
        model = served[self.config.model_name]
        # An adapter's own root is the adapter's folder, which need hold no tokenizer.
        base = served.get(str(model.get("parent")), model)
        window, root = model.get("max_model_len") or base.get("max_model_len"), base.get("root")
        self.max_model_len = window if type(window) is int and window > 0 else None
        self.root = root if isinstance(root, str) else None
        self._is_adapter = base is not model

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> Answer:
        """Sample `n` replies to `input_ids`.

        Returns the prompt ids that the inference server saw, and per reply the sampled ids, their logprobs
        and the finish reason. A request that the inference server did not answer is sent again with the
        same ids. Raises ContextOverflow, EngineError, TokenMismatch.
        """

        async def attempt() -> Answer:
            answer = await self.once(**kwargs)
            if kwargs.get("n", 1) == 1:
                sound(answer, kwargs["input_ids"], label=self.label)
            return answer

        retrying = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, EngineError) and error.passing),
            stop=stop_after_attempt(self.attempts),
            wait=lambda state: backoff_s(state.attempt_number - 1, most=8.0),
            before_sleep=before_sleep_log(logger, logging.WARNING),
            reraise=True,
        )
        try:
            return await retrying(attempt)
        except EngineDown as error:
            raise EngineError(f"{error} ({self.attempts} attempts)") from error

    async def once(self, **kwargs: Any) -> Answer:
        """Sample as `tokens_and_logprobs_completion` does, in one try. Raises EngineDown when another may succeed."""
        split = kwargs.pop("split", "train")
        length = len(kwargs["input_ids"]) + (kwargs.get("max_tokens") or 0)
        async with self.sem if split == "train" else self.eval_sem:
            start = time.monotonic()
            self.in_flight += 1
            try:
                # Before the request, as a reply's version is that of the oldest weights that had a part in it.
                served = await self._adapter_version() if self._is_adapter else None
                answer = await self._while_alive(self._tokens_and_logprobs_completion_wrapper(**kwargs))
            except ContextOverflow as error:
                if length > (known := self.max_model_len or self.longest):
                    raise
                raise EngineError(
                    f"{self.label} has no room for {length} tokens any more, though it had for {known}: it has come "
                    f"back with a smaller context window; start it with --max-model-len {known}, or this run anew "
                    f"({error})"
                ) from error
            finally:
                self.in_flight -= 1
            answer.versions = [served if version is None else version for version in answer.versions]
            self.longest = max(self.longest, length)
            self.sampled += sum(map(len, answer[1]))
            self._note(split, time.monotonic() - start)
            return answer

    def mark(self, error: Exception | None) -> None:
        """Remember how the last request went, so that others avoid an inference server that fails."""
        if error is None:
            if self._failures:
                logger.warning("%s works again", self.label)
            self._failures, self.sick_until = 0, 0.0
            return
        self._failures += 1
        self.sick_until = time.monotonic() + backoff_s(self._failures - 2, most=15.0)
        level = logging.WARNING if self._failures in (1, 10, 100) else logging.DEBUG
        logger.log(level, "failure %d in a row: %s", self._failures, error)

    async def alive(self) -> bool:
        """Tell whether anything answers at the server's address."""
        try:
            await self._client().get("/health", timeout=self.alive_s)
        except NoAnswer:
            return False
        return True

    async def load(self) -> Load | None:
        """Return how busy the server is; None when it does not say."""
        try:
            response = await self._client().get("/metrics", timeout=5.0)
        except NoAnswer:
            return None
        return _read_load(response.text) if response.status_code == 200 else None

    async def _adapter_version(self) -> int | None:
        """Return the step that the folder of the served adapter names, at most `adapter_s` old: vLLM's
        `/v1/completions` does not say which weights sampled a reply."""
        asked, version = self._adapter
        if time.monotonic() - asked > self.adapter_s:
            self._adapter = (time.monotonic(), version)  # so that of many requests one asks
            try:
                models = (await self._client().get("/v1/models", timeout=5.0)).raise_for_status().json()["data"]
                version = next(version_of(m.get("root")) for m in models if m["id"] == self.config.model_name)
                self._adapter = (time.monotonic(), version)
            except (NoAnswer, ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
                logger.debug("%s does not say which adapter it serves: %r", self.label, error)
        return version

    async def _while_alive(self, work: Awaitable[T]) -> T:
        """Await an answer while the server lives: one that is slow is waited for, one that hangs is not."""
        watches: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(None) as limit:
                # A task only for answers that are slow: most are not.
                watch = self._end_when_dead
                look = asyncio.get_running_loop().call_later(
                    self.probe_s, lambda: watches.append(asyncio.create_task(watch(limit)))
                )
                try:
                    return await work
                finally:
                    look.cancel()
        except TimeoutError as error:
            raise EngineDown(f"{self.label} has stopped answering") from error
        finally:
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)

    async def _end_when_dead(self, limit: asyncio.Timeout) -> None:
        """Ask the server again and again whether it lives; when it does not, let the time be over."""
        while True:
            if not await self.alive():
                break
            await asyncio.sleep(self.probe_s)
        limit.reschedule(asyncio.get_running_loop().time())

    async def _tokens_and_logprobs_completion_wrapper(self, **kwargs: Any) -> Answer:
        prompt = kwargs.pop("input_ids")
        kwargs.pop("prompt", None)
        options = {key: value for key, value in kwargs.items() if value is not None}
        body = self.request(prompt, options)
        answer = await self._asked(self.path, body)
        try:
            return self.read(answer, prompt)
        except AgentError as error:
            error.lost_tokens = error.lost_tokens or counted(self.sampled_in, answer)
            raise
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise OddAnswer(f"{self.label}'s answer is no completion: {str(answer)[:200]!r}") from error

    async def settle(self, error: OddAnswer, prompt: list[int]) -> AgentError:
        """Find out what an odd answer means that has come again and again: what else is answered tells.

        Returns ContextOverflow where the prompt's length alone is the reason, EngineError where this request or this
        server is refused for good, else the error itself: the server is broken, which may pass."""
        if not error.broken:
            return EngineError(f"{error} (each time)")
        filler = prompt[:1]
        if not await self._answers(filler) or await self._answers(prompt):
            return error
        if self.max_model_len is None and not await self._answers(filler * len(prompt)):
            fits, fails = 1, len(prompt)
            while fails - fits > 1:
                middle = (fits + fails) // 2
                fits, fails = (middle, fails) if await self._answers(filler * middle) else (fits, middle)
            if not await self._answers(filler * fits):
                return error  # it has broken meanwhile
            # With the token that was asked for.
            self.max_model_len = fits + 1
            return ContextOverflow(f"{self.label} takes prompts of up to {fits} tokens, not of {len(prompt)}: {error}")
        return EngineError(f"{error} (each time, while it answers other requests)")

    async def _answers(self, prompt: list[int]) -> bool:
        """Tell whether the server samples a token behind this prompt."""
        try:
            await self._while_alive(
                self._tokens_and_logprobs_completion_wrapper(input_ids=prompt, max_tokens=1, temperature=1.0, n=1)
            )
        except AgentError:
            return False
        return True

    path = "/v1/completions"
    """The route of requests."""

    def request(self, prompt: list[int], options: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a request. options: OpenAI's names (`max_tokens`, `temperature`, `top_p`, `n`, `stop`)."""
        return {
            **options,
            "model": self.config.model_name,
            "prompt": prompt,
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
        }

    def read(self, body: Any, prompt: list[int]) -> Answer:
        """Return the replies in an answer's body. Raises TokenMismatch when it can't be trained on."""
        choices = body["choices"]
        ids, logprobs, reasons = [], [], []
        seen = prompt
        for choice in choices:
            check_ended(choice["finish_reason"])
            sampled = choice.get("token_ids")
            if sampled is None:
                raise TokenMismatch(
                    f"{self.label} returned text without token ids; "
                    "training needs one that returns them (vLLM 0.10.2 or later does)"
                )
            given = (choice.get("logprobs") or {}).get("token_logprobs")
            if given is None and sampled:
                raise TokenMismatch(f"{self.label} returned no logprobs; training needs one that does")
            if choice.get("prompt_token_ids") is None:
                raise TokenMismatch(
                    f"{self.label} does not say which prompt ids it was given; "
                    "training needs one that does (`return_token_ids`)"
                )
            seen = choice["prompt_token_ids"]
            ids.append(list(sampled))
            logprobs.append(list(given or ()))
            reasons.append(choice["finish_reason"])
        return answer_of(seen, ids, logprobs, reasons, [_label(choice) for choice in choices])

    def sampled_in(self, body: Any) -> int:
        """Return how many tokens were sampled for an answer's body, as far as it tells. Raises what odd bodies do."""
        if (body.get("usage") or {}).get("completion_tokens") is not None:
            return int(body["usage"]["completion_tokens"])
        return sum(len(choice.get("token_ids") or ()) for choice in body["choices"])

    async def score(self, ids: list[int]) -> list[float]:
        """Return the server's logprobs of ids that it is given, from the second on. Raises EngineError."""
        body = {
            "model": self.config.model_name,
            "prompt": ids,
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": 0,
        }
        choice = (await self.ask(self.path, body))["choices"][0]
        scored = choice.get("prompt_logprobs")
        if not scored or len(scored) != len(ids):
            raise EngineError(f"{self.label} can't score a prompt")
        return [float(entry[str(token)]["logprob"]) for token, entry in zip(ids[1:], scored[1:], strict=True)]

    async def ask(self, path: str, body: dict[str, Any]) -> Any:
        """Post a question beside sampling, several times while nobody answers. Raises EngineError."""
        began, tries = time.monotonic(), 0
        while True:
            left = self.question_s - (time.monotonic() - began)
            try:
                # Short at first: a request may be lost, and a server that starts may be slow.
                return await self._asked(path, body, max(1.0, min(left, 10.0 * 2**tries)))
            except EngineDown as error:
                pause = backoff_s(tries - 1, most=8.0)
                tries += 1
                # What is answered oddly each time stays so; a server that does not answer may be starting.
                odd = isinstance(error, OddAnswer) and tries >= self.attempts
                if odd or time.monotonic() - began + pause >= self.question_s:
                    raise EngineError(f"{error} ({tries} attempts)") from error
            await asyncio.sleep(pause)

    async def _asked(self, path: str, body: dict[str, Any], seconds: float | None = None) -> Any:
        """Post to a path once. seconds: for the answer; None for the configured silence. Raises AgentError."""
        try:
            response = await self._client().post(path, json=body, timeout=seconds)
        except NoAnswer as error:
            raise EngineDown(f"{self.label} did not answer: {_cause(error)}") from error
        if response.status_code != 200:
            raise refusal(self.label, response.status_code, response.text)
        try:
            answer = response.json()
        except ValueError as error:
            raise OddAnswer(f"{self.label} answered with something else than JSON: {response.text[:200]!r}") from error
        if (said := said_error(answer)) is not None:
            raise refusal(self.label, *said)
        return answer

    async def prompt_ids_of(self, text: str) -> list[int]:
        """Return how the server itself encodes `text`, to compare with the tokenizer in use."""
        body = {
            "model": self.config.model_name,
            "prompt": text,
            "max_tokens": 1,
            "return_token_ids": True,
            "add_special_tokens": False,
        }
        choice = (await self.ask(self.path, body))["choices"][0]
        if not choice.get("prompt_token_ids"):
            raise EngineError(f"{self.label} returns no token ids; vLLM 0.10.2 or later does")
        return list(choice["prompt_token_ids"])

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    def _client(self) -> HttpClient:
        if self._http is None:
            headers = {"Authorization": f"Bearer {self.config.api_key}"} if self.config.api_key else {}
            self._http = HttpClient(self.url, headers=headers, timeout_s=self.config.timeout)
        return self._http

    def _note(self, split: str, seconds: float) -> None:
        """Keep atroposlib's request statistics, which it never bounds."""
        timings, tries = (
            (self.request_timings, self.attempts_list)
            if split == "train"
            else (self.eval_request_timings, self.eval_attempts_list)
        )
        for values, value in ((timings, seconds), (tries, 1)):
            values.append(value)
            del values[: -self.config.rolling_buffer_length]


def backoff_s(doublings: int, *, most: float) -> float:
    """Return a pause of 2**doublings seconds, `most` at most, less up to half of it, so that callers scatter."""
    return min(most, 2.0 ** min(doublings, 10)) * random.uniform(0.5, 1.0)


def answer_of(
    seen: list[int],
    ids: list[list[int]],
    logprobs: list[list[float]],
    reasons: list[str],
    versions: Sequence[Any],
) -> Answer:
    """Return an Answer. versions: labels of weights, as `version_of` reads them."""
    answer = Answer((seen, ids, logprobs, reasons))
    answer.versions = [version_of(version) for version in versions]
    return answer


def _label(choice: Mapping[str, Any]) -> Any:
    """The embedded server names the oldest weights, vLLM's `/inference/v1/generate` all of them."""
    return choice["weight_version"] if "weight_version" in choice else choice.get("weight_versions")


def _read_load(page: str) -> Load | None:
    """Return the load that a page of Prometheus metrics tells; None when it does not, or is torn."""
    found: dict[str, float] = {}
    for line in page.splitlines():
        name, _, rest = line.partition(" ")
        name = name.partition("{")[0]
        if name not in _LOAD_METRICS:
            continue
        try:
            value = float(rest.rpartition(" ")[2])
        except ValueError:
            return None
        if not 0 <= value < math.inf:
            return None
        found[name] = found.get(name, 0.0) + value
    return Load(*(found.get(name, 0.0) for name in _LOAD_METRICS)) if found else None


def _cause(error: BaseException) -> str:
    if isinstance(error, NoAnswer):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
