"""Talk to inference servers: token ids in, sampled ids and their logprobs out.

atroposlib's own `VLLMServer` posts to `/generate`, which stock vLLM does not have, tries every
request three times whatever the error, hides the cause, and waits for ever for a silent inference
server. `CompletionsServer` speaks the protocol of `vllm serve` and replaces this
behaviour in this one place.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ReasoningConfig
from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception, stop_after_attempt

from atropos_agent.engines.chat import UNNAMED, name_models
from atropos_agent.engines.errors import (
    ODD,
    ContextOverflow,
    EngineDown,
    ModelNotServed,
    NotThisServer,
    OddAnswer,
    count_or_zero,
    parse_error,
    refusal,
    shown,
    startup_error,
)
from atropos_agent.engines.http import HttpClient, NoAnswer, NotHttp, Response, split_address
from atropos_agent.engines.liveness import cancel_when_dead
from atropos_agent.engines.load import Load, read_load
from atropos_agent.engines.replies import Defect, UnsoundReply, check_answer, check_ended
from atropos_agent.engines.sessions import HEADERS, Session
from atropos_agent.engines.token_server import TokenServer, note_request
from atropos_agent.engines.versions import ServedAdapter, program_version, version_of
from atropos_agent.tokens.conversation import Completion
from atropos_agent.tokens.template import End
from atropos_agent.types import AgentError, EngineError, TokenMismatch
from sandboxes.tls import explain_tls_failure

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Answer(tuple[list[int], list[list[int]], list[list[float]], list[str]]):
    """The four values that atroposlib expects: prompt ids, and per reply ids, logprobs, finish reason.

    versions: per reply, the version of the oldest weights that had a part in it; None if the inference server
        does not say.
    """

    experts: list[str | None]
    """Per reply, the experts of prompt and reply (`atropos_agent.tokens.experts`); None if the
    inference server does not say."""
    versions: list[int | None]


class CompletionsServer(TokenServer):
    """An inference server with vLLM's `/v1/completions` and token ids in both directions.

    Source: vllm/entrypoints/openai/completion/protocol.py (`return_token_ids`, `logprobs`).
    """

    attempts = 4
    """Tries of a request before its error is raised, and odd answers before their cause is looked for."""
    question_s = 150.0
    """Seconds in which a question beside sampling is repeated while it is not answered."""
    first_s = 10.0
    """Seconds for its first answer."""
    probe_s = 20.0
    """Seconds without an answer before a request whether the server lives."""
    alive_s = 30.0
    """Seconds for the answer to this question."""

    def __init__(self, config: APIServerConfig, reasoning_config: ReasoningConfig | None = None) -> None:
        super().__init__(config, reasoning_config=reasoning_config)
        self.url, self._query = split_address(str(config.base_url), "/v1")
        self.initialized = True  # no health-check task: a request finds out by itself
        self.max_model_len: int | None = None
        """Context window in tokens, known after `connect`."""
        self.root: str | None = None
        """The model's folder or name as the inference server loaded it, an adapter's base; known after `connect`."""
        self.adapter: ServedAdapter | None = None
        """The served adapter, if the model is one; known after `connect`."""
        self.longest = 0
        """Prompt and reply together, in tokens, of the longest request that it ever took."""
        self.extra: dict[str, Any] = {}
        """Further fields of each request, such as vLLM's `cache_salt`."""
        self.in_flight = 0
        self.sampled = 0
        """Tokens that it has ever sampled for us."""
        self.returns_ends = False
        """Whether it has ever returned the token that ended a reply: some servers withhold it."""
        self.sick_until = 0.0
        """Until when (`time.monotonic`) no request should be sent, because the last ones failed."""
        self._failures = 0
        self._known = False
        """Whether it has ever answered a request."""
        self._http: HttpClient | None = None

    @property
    def label(self) -> str:
        """Return how messages call it."""
        return f"the inference server at {self.url}"

    async def connect(self) -> None:
        """Ask the inference server for its models. Raises EngineError with the remedy."""
        response = await self.probe("/v1/models", "`vllm serve MODEL`")
        try:
            served = {str(model["id"]): model for model in response.json()["data"]}
        except ODD as error:
            raise NotThisServer(
                f"{self.label} answers /v1/models with something else than a list of models "
                f"({response.text[:100]!r}), so it is another program; set --openai.base_url to an inference server's "
                "address"
            ) from error
        if self.config.model_name in UNNAMED and len(served) == 1:
            self.config.model_name = next(iter(served))
        if self.config.model_name not in served:
            remedy = f"set --openai.model_name to {name_models([*served])}" if served else "load a model there"
            name = self.config.model_name
            problem = "is not told which model is meant" if name in UNNAMED else f"does not serve {name!r}"
            raise ModelNotServed(f"{self.label} {problem}; {remedy}")
        model = served[self.config.model_name]
        # An adapter's own root is the adapter's folder, which need hold no tokenizer.
        base = served.get(str(model.get("parent")), model)
        window, root = model.get("max_model_len") or base.get("max_model_len"), base.get("root")
        self.max_model_len = window if type(window) is int and window > 0 else None
        self.root = root if isinstance(root, str) else None
        self.adapter = ServedAdapter(self._client(), self.config.model_name) if base is not model else None

    async def probe(self, path: str, start: str) -> Response:
        """Ask the inference server for the first time, and return its answer. start: the command that starts one.
        Raises EngineError with the remedy."""
        try:
            response = await self._client().get(path, timeout=5.0)
        except NoAnswer as error:
            raise unreachable(self.url, error, start) from error
        location = response.headers.get("location", "")
        if (unusable := startup_error(self.label, response.status_code, response.text, path, location)) is not None:
            raise unusable
        return response

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> Answer:
        """Sample `n` replies to `input_ids`. session: the `Session` of the request, if any.

        Returns the prompt ids that the inference server saw, and per reply the sampled ids, their logprobs
        and the finish reason. A request without an answer is sent again with the
        same ids. Raises ContextOverflow, EngineError, TokenMismatch.
        """

        async def attempt() -> Answer:
            answer = await self.once(**kwargs)
            if kwargs.get("n", 1) == 1:
                check_answer(answer, kwargs["input_ids"], label=self.label, most=kwargs.get("max_tokens"))
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
                served = await self.adapter.version() if self.adapter is not None else None
                answer = await self._tokens_and_logprobs_completion_wrapper(**kwargs)
            except ContextOverflow as error:
                if length > (known := self.max_model_len or self.longest):
                    raise
                raise EngineError(
                    f"{self.label} has no room for {length} tokens any more, though it had for {known}: it has come "
                    f"back with a smaller context window; start it with --max-model-len {known}, or restart this run "
                    f"({error})"
                ) from error
            finally:
                self.in_flight -= 1
            answer.versions = [served if version is None else version for version in answer.versions]
            self.longest = max(self.longest, length)
            self.sampled += sum(map(len, answer[1]))
            note_request(self, split, time.monotonic() - start)
            return answer

    def check_end(self, completion: Completion, end: End) -> None:
        """Check a reply with the finish reason "stop": it must hold the token or string at which it stopped. Raises
        UnsoundReply.

        A server that has never returned the token that ends a reply is taken for one that withholds it."""
        if completion.finish_reason != "stop" or end is End.STRING:
            return
        if end is End.TOKEN:
            self.returns_ends = True
        elif self.returns_ends:
            raise UnsoundReply(
                Defect.ABORTED,
                f"{self.label} cut a reply off after {len(completion.ids)} tokens, and says that it stopped: it holds "
                "neither a token that ends a turn nor a string to stop at",
                lost_tokens=len(completion.ids),
            )

    def note_outcome(self, error: Exception | None) -> None:
        """Remember the outcome of the last request: others avoid an inference server that fails."""
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

    async def version(self) -> str | None:
        """Return the version of the inference server's program; None when it does not say."""
        http = self._make_client()  # of its own: this runs before a run is open, which closes the others
        try:
            return await program_version(http)
        finally:
            await http.aclose()

    async def load(self) -> Load | None:
        """Return how busy the server is; None when it does not say."""
        try:
            response = await self._client().get("/metrics", timeout=5.0)
        except NoAnswer:
            return None
        return read_load(response.text) if response.status_code == 200 else None

    async def _tokens_and_logprobs_completion_wrapper(self, **kwargs: Any) -> Answer:
        prompt, session = kwargs.pop("input_ids"), kwargs.pop("session", None)
        kwargs.pop("prompt", None)
        options = {key: value for key, value in kwargs.items() if value is not None}
        body = self.request(prompt, options)
        answer = await cancel_when_dead(
            self._post(self.path, body, session=session), self.alive, every_s=self.probe_s, label=self.label
        )
        try:
            return self.read(answer, prompt)
        except AgentError as error:
            error.lost_tokens = error.lost_tokens or count_or_zero(self.count_sampled, answer)
            raise
        except ODD as error:
            raise OddAnswer(f"{self.label}'s answer is no completion: {shown(answer)}") from error

    async def settle_error(self, error: OddAnswer, prompt: list[int]) -> AgentError:
        """Return the exception for a repeated odd answer: ContextOverflow if the prompt's length alone is its reason,
        EngineError if this request or this server is refused for good, else the error itself: the server is broken,
        which may pass. A newly found context window is kept."""
        if not error.broken:
            return EngineError(f"{error} (each time)")
        filler = prompt[:1]
        if not await self.can_sample(filler) or await self.can_sample(prompt):
            return error
        if self.max_model_len is not None or await self.can_sample(filler * len(prompt)):
            return EngineError(f"{error} (each time, while it answers other requests)")
        fits, fails = 1, len(prompt)
        while fails - fits > 1:
            middle = (fits + fails) // 2
            fits, fails = (middle, fails) if await self.can_sample(filler * middle) else (fits, middle)
        if not await self.can_sample(filler * fits):
            return error  # it has broken meanwhile
        self.max_model_len = fits + 1  # with the requested token
        return ContextOverflow(f"{self.label} takes prompts of up to {fits} tokens, not of {len(prompt)}: {error}")

    async def can_sample(self, prompt: list[int]) -> bool:
        """Tell whether the server samples a token after this prompt."""
        try:
            await self._tokens_and_logprobs_completion_wrapper(input_ids=prompt, max_tokens=1, temperature=1.0, n=1)
        except AgentError:
            return False
        return True

    path = "/v1/completions"
    """The route of requests."""

    def request(self, prompt: list[int], options: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a request. options: OpenAI's names (`max_tokens`, `temperature`, `top_p`, `n`, `stop`)."""
        return {
            **options,
            **self.extra,
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
            seen, sampled, given = _parse_choice(choice, self.label)
            ids.append(sampled)
            logprobs.append(given)
            reasons.append(choice["finish_reason"])
        answer = answer_of(seen, ids, logprobs, reasons, [_weights_label(choice) for choice in choices])
        answer.experts = [choice.get("routed_experts") for choice in choices]
        return answer

    def count_sampled(self, body: Any) -> int:
        """Return how many tokens were sampled for an answer's body, as far as it tells. Raises the exceptions of odd
        bodies."""
        if (body.get("usage") or {}).get("completion_tokens") is not None:
            return int(body["usage"]["completion_tokens"])
        return sum(len(choice.get("token_ids") or ()) for choice in body["choices"])

    async def score(self, ids: list[int]) -> list[float]:
        """Return the server's logprobs of these ids, from the second on. Raises EngineError."""
        scored = await self.scores(ids)
        return [entry[token] for token, entry in zip(ids[1:], scored, strict=True)]

    async def scores(self, ids: list[int], top: int = 0) -> list[dict[int, float]]:
        """Return logprobs by id, for each of these ids from the second on: of the id itself, and of the `top` likeliest
        ones in its place. Raises EngineError."""
        body = {
            "model": self.config.model_name,
            "prompt": ids,
            "max_tokens": 1,
            "temperature": 1.0,
            "prompt_logprobs": top,
        }

        def read(answer: Any) -> list[dict[int, float]]:
            places = answer["choices"][0]["prompt_logprobs"][1:]
            return [{int(i): float(one["logprob"]) for i, one in place.items()} for place in places]

        found = await self.query(self.path, body, read, "score a prompt")
        if len(found) != len(ids) - 1 or any(i not in place for i, place in zip(ids[1:], found, strict=True)):
            raise EngineError(f"{self.label} can't score a prompt: it returned the logprobs of other tokens")
        return found

    async def query(self, path: str, body: dict[str, Any], read: Callable[[Any], T], what: str) -> T:
        """Post a question beside sampling, several times while nobody answers, and return what `read` makes of the
        answer. what: the question, in words. Raises EngineError."""
        answer = await self._post_with_retries(path, body)
        try:
            return read(answer)
        except ODD as error:
            raise EngineError(f"{self.label} can't {what}: {shown(answer)}") from error

    async def _post_with_retries(self, path: str, body: dict[str, Any]) -> Any:
        began, tries = time.monotonic(), 0
        while True:
            left = self.question_s - (time.monotonic() - began)
            try:
                # Short at first: a request may be lost, and a server that starts may be slow.
                return await self._post(path, body, max(1.0, min(left, self.first_s * 2**tries)))
            except EngineDown as error:
                pause = backoff_s(tries - 1, most=8.0)
                tries += 1
                # What is answered oddly each time stays so; a server that does not answer may be starting.
                odd = isinstance(error, OddAnswer) and tries >= self.attempts
                if odd or time.monotonic() - began + pause >= self.question_s:
                    raise EngineError(f"{error} ({tries} attempts)") from error
            await asyncio.sleep(pause)

    async def _post(
        self, path: str, body: dict[str, Any], seconds: float | None = None, session: Session | None = None
    ) -> Any:
        """Post to a path once. seconds: for the answer; None for the configured silence. session: the owner of the
        request. Raises AgentError."""
        names = getattr(self.config, "session_headers", HEADERS)
        headers = {} if session is None else session.headers(self.url, names)
        try:
            response = await self._client().post(path, json=body, timeout=seconds, headers=headers)
        except NoAnswer as error:
            raise EngineDown(f"{self.label} did not answer: {error}") from error
        if session is not None:
            session.note_response(self.url, response.headers)
        if response.status_code != 200:
            raise refusal(self.label, response.status_code, response.text, known=self._known)
        try:
            answer = response.json()
        except ValueError as error:
            raise OddAnswer(f"{self.label} answered with something else than JSON: {response.text[:200]!r}") from error
        if (failure := parse_error(answer)) is not None:
            raise refusal(self.label, *failure, known=self._known)
        self._known = True
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

        def read(answer: Any) -> list[int]:
            return [int(i) for i in answer["choices"][0].get("prompt_token_ids") or ()]

        ids = await self.query(self.path, body, read, "encode a text")
        if not ids:
            raise EngineError(f"{self.label} returns no token ids; vLLM 0.10.2 or later does")
        return ids

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    def _client(self) -> HttpClient:
        if self._http is None:
            self._http = self._make_client()
        return self._http

    def _make_client(self) -> HttpClient:
        headers = {"Authorization": f"Bearer {self.config.api_key}"} if self.config.api_key else {}
        headers |= getattr(self.config, "headers", {})
        return HttpClient(self.url, headers=headers, timeout_s=self.config.timeout, query=self._query)


def backoff_s(doublings: int, *, most: float) -> float:
    """Return a pause of 2**doublings seconds, `most` at most, less up to half of it: so callers scatter."""
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
    answer.experts = [None] * len(ids)
    return answer


def _parse_choice(choice: Mapping[str, Any], label: str) -> tuple[list[int], list[int], list[float]]:
    """Return the prompt's ids, the sampled ids and their logprobs. Raises TokenMismatch if one is missing."""
    sampled = choice.get("token_ids")
    if sampled is None:
        raise TokenMismatch(
            f"{label} returned text without token ids; training needs one that returns them (vLLM 0.10.2 or later does)"
        )
    given = (choice.get("logprobs") or {}).get("token_logprobs")
    if given is None and sampled:
        raise TokenMismatch(f"{label} returned no logprobs; training needs one that does")
    if choice.get("prompt_token_ids") is None:
        raise TokenMismatch(
            f"{label} does not say which prompt ids it was given; training needs one that does (`return_token_ids`)"
        )
    return list(choice["prompt_token_ids"]), list(sampled), list(given or ())


def _weights_label(choice: Mapping[str, Any]) -> Any:
    """Return a label of a reply's weights: the embedded server names the oldest, vLLM all of them."""
    return choice["weight_version"] if "weight_version" in choice else choice.get("weight_versions")


def unreachable(url: str, error: NoAnswer, program: str) -> EngineError:
    """Return the exception for no answer from a URL at the start. program: the one to start there."""
    if (why := explain_tls_failure(error, "--openai.base_url")) is not None:
        return NotThisServer(f"the inference server at {url} can't be used: {why}")
    if isinstance(error, NotHttp):
        return NotThisServer(
            f"what answers at {url} is no inference server that can be talked to ({error}); set --openai.base_url to "
            "one's address (http:// or https://, as it speaks)"
        )
    return EngineError(
        f"no inference server answers at {url} ({error}); start {program} there or set --openai.base_url"
    )
