"""Continuous batching: one worker thread with a running batch, which requests join and leave.

Each step computes one new token for every running sequence and, beside them, a piece of the
prompts being read in. A prompt starts from the longest prefix that any finished
or running sequence has computed already.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from atropos_agent.cpu_engine.llama import Llama, SequenceCache
from atropos_agent.cpu_engine.prefix import Entry, PrefixStore, common_prefix
from atropos_agent.cpu_engine.sampling import Logprobs, LogprobsMode, SamplingParams, describe, sample

logger = logging.getLogger(__name__)

_PREFILL_TOKENS = 192
"""Prompt tokens read in a step: about half a second of a 135M model on one core. A running sequence then waits as long
for its next token."""

_WORTH_WAITING = 16
"""A prompt waits for another one being read in when they share this many tokens more than
those computed already."""


@dataclass(frozen=True, slots=True)
class FinishedSequence:
    """One finished sequence.

    token_ids: all sampled ids, the stop token included.
    text: decoded, without the stop token or the stop string.
    finish_reason: "stop" or "length". stop_reason: the stop string or token id of the request
        that ended it; None for the model's own end-of-turn token.
    weight_version: of the oldest weights that had a part in it: the weights at its beginning.
    """

    token_ids: Sequence[int]
    text: str
    logprobs: Sequence[Logprobs]
    prompt_logprobs: Sequence[Logprobs | None] | None
    finish_reason: str
    stop_reason: str | int | None
    cached_tokens: int
    weight_version: int


Done = Callable[[FinishedSequence | Exception], object]


class EngineStopped(RuntimeError):
    """The server ended before the sequence did."""


@dataclass(slots=True)
class _Sequence:
    """One sequence in work. `ids` grows; `joined_at` is the weight version at its beginning, `loads` how often weights
    had been loaded by then."""

    prompt: Sequence[int]
    params: SamplingParams
    done: Done
    generator: torch.Generator
    ids: list[int]
    cache: SequenceCache | None = None
    cached_tokens: int = 0
    joined_at: int = 0
    loads: int = 0
    logprobs: list[Logprobs] = field(default_factory=list)
    prompt_logprobs: list[Logprobs | None] = field(default_factory=list)
    cancelled: bool = False

    @property
    def sampled(self) -> list[int]:
        return self.ids[len(self.prompt) :]

    @property
    def unread(self) -> int:
        """Return how many ids are known but not computed; 1 for a sampling sequence."""
        return len(self.ids) - (self.cache.length if self.cache else 0)


class Ticket:
    """A submitted sequence, to cancel it by."""

    def __init__(self, sequence: _Sequence) -> None:
        self._sequence = sequence

    def cancel(self) -> None:
        """Leave the batch before the next step; `done` is not called any more."""
        self._sequence.cancelled = True


class Engine:
    """A model, its running batch and the thread that drives it.

    model, tokenizer: the served ones; `tokenizer` is a transformers fast tokenizer.
    eos_ids: ids that end a reply unless the request says `ignore_eos`.
    max_batch: sequences in one step. cache_mb: MiB of finished sequences kept for their prefixes.
    """

    def __init__(
        self,
        model: Llama,
        tokenizer: Any,
        eos_ids: Sequence[int],
        *,
        logprobs_mode: LogprobsMode = LogprobsMode.PROCESSED,
        max_batch: int = 64,
        cache_mb: int = 2048,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.weight_version = 0
        self._loads = 0
        """How often weights were loaded: two of them may have one version."""
        self.generated_tokens = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self._eos_ids = frozenset(eos_ids)
        self._mode = logprobs_mode
        self._max_batch = max_batch
        self._store = PrefixStore(cache_mb * 2**20)
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []
        self._jobs: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._seeds = torch.Generator()
        self._seeds.seed()
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def abort(self) -> None:
        """Let the thread end after its step; sequences in work get EngineStopped."""
        with self._wake:
            self._stopping = True
            self._wake.notify()

    def stop(self, timeout: float = 1.5) -> None:
        """Abort and wait up to `timeout` seconds until the thread has ended."""
        self.abort()
        self._thread.join(timeout)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(
        self,
        prompt: Sequence[int],
        params: SamplingParams,
        done: Done,
        index: int = 0,
    ) -> Ticket:
        """Queue a sequence. `done` is called once, in the scheduler's thread.

        index: of the sequence among the `n` of its request; makes their seeds differ.
        """
        generator = torch.Generator()
        with self._wake:
            if self._stopping or not self.alive:
                raise EngineStopped("the server has stopped")
            fresh = int(torch.randint(2**62, (), generator=self._seeds))
            generator.manual_seed(fresh if params.seed is None else params.seed + index)
            sequence = _Sequence(prompt, params, done, generator, list(prompt))
            self._waiting.append(sequence)
            self._wake.notify()
        return Ticket(sequence)

    def complete(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[str]:
        """Return the texts of one completion for each prompt, for callers without an event loop."""
        results: list[Future[FinishedSequence]] = []
        for index, prompt in enumerate(prompts):
            result: Future[FinishedSequence] = Future()
            results.append(result)
            self.submit(prompt, params, _resolve(result), index)
        return [result.result().text for result in results]

    def load_weights(
        self, weights: Mapping[str, Tensor], version: int, done: Callable[[Exception | None], object]
    ) -> None:
        """Swap the weights between two steps. Running sequences go on with the new ones; the caches of
        finished sequences are forgotten. `done` is called in the scheduler's thread."""

        def job() -> None:
            try:
                self.model.load(weights)
            except Exception as error:  # PyTorch's own for shapes that can't be joined; the old weights stay
                done(error)
                return
            self._store.clear()
            self._loads += 1
            self.weight_version = version
            done(None)

        with self._wake:
            self._jobs.append(job)
            self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not (self._stopping or self._waiting or self._running or self._jobs):
                    self._wake.wait()
                stopping = self._stopping
                jobs = [] if stopping else list(self._jobs)
                self._jobs.clear()
            if stopping:
                break
            for job in jobs:
                job()
            try:
                with torch.inference_mode():
                    self._step()
            except Exception as error:  # a bug or no memory: the step's sequences are lost, the server stays up
                logger.exception("a step of the scheduler failed")
                for sequence in self._running:
                    sequence.done(error)
                self._running.clear()
        for sequence in [*self._running, *self._waiting]:
            if not sequence.cancelled:
                sequence.done(EngineStopped("the server was stopped"))
        self._running.clear()
        self._waiting.clear()

    def _step(self) -> None:
        for sequence in [s for s in self._running if s.cancelled]:
            self._remove(sequence)
        batch = self._plan()
        if not batch:
            return
        hidden = self.model.forward([(_cache(s), s.ids[_cache(s).length :][:count]) for s, count in batch])
        ends, start = [], 0
        for sequence, count in batch:
            if sequence.params.prompt_logprobs is not None and not sequence.sampled:
                self._score_prompt(sequence, hidden[start : start + count], count)
            start += count
            if sequence.unread == 0:
                ends.append((sequence, start - 1))
        ready = [(s, end) for s, end in ends if s.params.max_tokens > 0]
        for sequence, _ in ends:
            if sequence.params.max_tokens == 0:
                self._finish(sequence, "length", None)
        if not ready:
            return
        logits = self.model.logits(hidden[[end for _, end in ready]])
        chosen = sample(logits, [s.params for s, _ in ready], [s.generator for s, _ in ready], self._mode)
        for (sequence, _), logprobs in zip(ready, chosen, strict=True):
            self._append(sequence, logprobs)

    def _plan(self) -> list[tuple[_Sequence, int]]:
        """Choose the sequences for the step, and the number of new tokens for each."""
        sampling = [(s, 1) for s in self._running if s.unread == 1 and s.sampled]
        budget = _PREFILL_TOKENS
        reading: list[tuple[_Sequence, int]] = []
        for sequence in [s for s in self._running if not s.sampled]:
            if budget > 0:
                count = min(sequence.unread, budget)
                budget -= count
                reading.append((sequence, count))
        while budget > 0 and self._waiting and len(self._running) < self._max_batch:
            sequence = self._waiting.popleft()
            if sequence.cancelled:
                continue
            if not self._admit(sequence, [s for s, _ in reading]):
                self._waiting.appendleft(sequence)
                break
            count = min(sequence.unread, budget)
            budget -= count
            reading.append((sequence, count))
        return sampling + reading

    def _admit(self, sequence: _Sequence, reading: Sequence[_Sequence]) -> bool:
        """Start a sequence from the tokens computed already; False when it had better wait for a
        prompt now being read in."""
        # The last prompt token is always computed: its logits are what is sampled from. Scoring
        # needs the logits of the whole prompt.
        usable = 0 if sequence.params.prompt_logprobs is not None else len(sequence.prompt) - 1
        wanted = sequence.prompt[:usable]
        length, source = self._store.find_best(wanted, self._shareable_caches())
        for other in reading:
            if common_prefix(other.prompt, wanted) > length + _WORTH_WAITING:
                return False
        self._running.append(sequence)  # first, so that a lack of memory ends it
        cache = self.model.new_cache(len(sequence.prompt) + min(sequence.params.max_tokens, 256))
        if source is not None:
            cache.take(source, length)
        sequence.cache, sequence.cached_tokens = cache, length
        sequence.joined_at, sequence.loads = self.weight_version, self._loads
        self.prompt_tokens += len(sequence.prompt)
        self.cached_tokens += length
        return True

    def _shareable_caches(self) -> list[Entry]:
        return [(s.ids, _cache(s)) for s in self._running if s.loads == self._loads]

    def _score_prompt(self, sequence: _Sequence, hidden: Tensor, count: int) -> None:
        """Return logprobs of the prompt tokens after the `count` places just computed."""
        if not sequence.prompt_logprobs:
            sequence.prompt_logprobs.append(None)
        first = _cache(sequence).length - count + 1
        following = sequence.prompt[first : first + count]
        for begin in range(0, len(following), 32):
            part = following[begin : begin + 32]
            rows = torch.log_softmax(self.model.logits(hidden[begin : begin + len(part)]), dim=-1)
            sequence.prompt_logprobs += [
                describe(row, token, sequence.params.prompt_logprobs) for row, token in zip(rows, part, strict=True)
            ]

    def _append(self, sequence: _Sequence, logprobs: Logprobs) -> None:
        """Take a sampled token in, and finish the sequence when it ends there."""
        params, token = sequence.params, logprobs.token
        sequence.ids.append(token)
        sequence.logprobs.append(logprobs)
        self.generated_tokens += 1
        if token in self._eos_ids and not params.ignore_eos:
            self._finish(sequence, "stop", None)
        elif token in params.stop_token_ids:
            self._finish(sequence, "stop", token)
        elif (found := self._stop_string(sequence)) is not None:
            self._finish(sequence, "stop", *found)
        elif len(sequence.sampled) >= params.max_tokens:
            self._finish(sequence, "length", None)

    def _stop_string(self, sequence: _Sequence) -> tuple[str, str] | None:
        """Return the first stop string in the text, and the text up to it."""
        params = sequence.params
        if not params.stop:
            return None
        # A character has up to four bytes, each of which may be a token.
        end = self._decode(sequence.sampled[-4 * max(map(len, params.stop)) - 1 :], params)
        if not any(stop in end for stop in params.stop):
            return None
        text = self._decode(sequence.sampled, params)
        place, stop = min(((place, stop) for stop in params.stop if (place := text.find(stop)) >= 0), default=(-1, ""))
        if place < 0:
            return None
        return stop, text[: place + len(stop) * params.include_stop_str_in_output]

    def _decode(self, ids: Sequence[int], params: SamplingParams) -> str:
        return str(
            self.tokenizer.decode(
                ids, skip_special_tokens=params.skip_special_tokens, clean_up_tokenization_spaces=False
            )
        )

    def _finish(
        self, sequence: _Sequence, finish_reason: str, stop_reason: str | int | None, text: str | None = None
    ) -> None:
        params, ids = sequence.params, sequence.sampled
        if text is None:
            shown = ids[:-1] if finish_reason == "stop" and not params.include_stop_str_in_output else ids
            text = self._decode(shown, params)
        self._remove(sequence)
        sequence.done(
            FinishedSequence(
                token_ids=ids,
                text=text,
                logprobs=sequence.logprobs,
                prompt_logprobs=None if params.prompt_logprobs is None else sequence.prompt_logprobs,
                finish_reason=finish_reason,
                stop_reason=stop_reason,
                cached_tokens=sequence.cached_tokens,
                weight_version=sequence.joined_at,
            )
        )

    def _remove(self, sequence: _Sequence) -> None:
        self._running.remove(sequence)
        if sequence.loads == self._loads:  # else older weights computed a part of it
            self._store.put(sequence.ids, _cache(sequence))


def _cache(sequence: _Sequence) -> SequenceCache:
    if sequence.cache is None:
        raise RuntimeError("a sequence runs without a cache")
    return sequence.cache


def _resolve(future: Future[FinishedSequence]) -> Done:
    def done(result: FinishedSequence | Exception) -> None:
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)

    return done
