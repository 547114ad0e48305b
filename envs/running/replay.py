"""A rollout's turns, journalled one by one, and given again when it is begun again.

An interrupted rollout (our process was killed, an inference server or the verifier failed) is begun again in a
fresh sandbox. As long as its prompts come out the same, as they do while the tools answer the
same, it gets the replies that were sampled before, with their ids and logprobs, and no server is
asked. From the first different prompt on, replies are sampled as usual. Either way each
reply was sampled for exactly the prompt before it.

A reply is journalled when the conversation has taken it in, not when it comes: a refused one, such as an aborted
one, would be refused again at every attempt. Replies that were given again and led no further are not given a third
time (`is_stuck`).

Most test runners print their duration, another number each time. If a tool's result differs from its earlier one
in such times alone, the model gets the earlier one.
"""

from __future__ import annotations

import hashlib
import logging
import re
from array import array
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import orjson

from atropos_agent.engines.completions import Answer
from atropos_agent.engines.errors import EngineDown
from atropos_agent.engines.route import Route
from atropos_agent.engines.token_server import TokenServer
from atropos_agent.ledger import ExecuteTool
from atropos_agent.types import EngineError
from tools.base import ToolCall, ToolResult

logger = logging.getLogger(__name__)

_TIME = re.compile(r"\d+(?:\.\d+)?(?= ?(?:s|ms|seconds?)\b)")
"""How long something took: "passed in 0.12s", "Ran 3 tests in 0.001s", "real 0m1.20s"."""


class TurnStore(Protocol):
    """The storage of turns: the journal, or, in a worker process, the messages to the driver's."""

    def add_turn(self, number: int, member: int, body: bytes) -> None:
        """Note a turn of a group's member."""
        ...

    async def turns(self, number: int, member: int) -> list[bytes]:
        """Return the turns of a member."""
        ...

    async def forget_turns(self, number: int, member: int) -> None:
        """Delete a member's turns."""
        ...


class TurnRecording:
    """The requests to the inference server and its answers in one member of a group."""

    def __init__(self, journal: TurnStore, number: int, member: int) -> None:
        self._journal = journal
        self._key = (number, member)
        self._answers: dict[str, deque[Answer]] = defaultdict(deque)
        self._known: list[int] = []
        """The last prompt and reply; the next prompt is normally a continuation of them."""
        self._kept = 0
        """How much of the last prompt was known before."""
        self._digest = hashlib.blake2b(digest_size=16)
        """Digest of `_known`, updated so that a turn costs only its new tokens."""
        self._calls = 0
        self._timed: dict[str, str] = {}
        """Earlier results with times in them, by the number of the call."""
        self._fresh: dict[str, str] = {}
        """The same of this attempt, since the last turn."""
        self._turns: dict[int, tuple[list[int], dict[str, Any]]] = {}
        """Prompts and turns for the journal once their replies are taken in, by the id of the reply's list. A
        rollout may have several conversations at once."""
        self._repeated = self._new = 0
        """Replies of this attempt that were given again, and new ones that were taken in."""
        self._waiting = False
        """Whether a server was asked last and has given no acceptable reply."""

    @property
    def is_stuck(self) -> bool:
        """Tell whether this attempt came only as far as an earlier one, by its replies, and the servers did answer:
        then these replies may be why it fails."""
        return self._repeated > 0 and self._new == 0 and not self._waiting

    @property
    def progress(self) -> tuple[int, int, bool]:
        """Return the values after `is_stuck`, or set them: another process gives the replies again."""
        return self._repeated, self._new, self._waiting

    @progress.setter
    def progress(self, found: tuple[int, int, bool]) -> None:
        self._repeated, self._new, self._waiting = found

    async def journalled_turns(self) -> list[bytes]:
        """Return the journalled turns."""
        return await self._journal.turns(*self._key)

    def journal(self, body: bytes) -> None:
        """Journal a turn from another process."""
        self._journal.add_turn(*self._key, body)

    async def rewind(self) -> None:
        """Give the journalled turns to the next attempt."""
        self._clear()
        for body in await self.journalled_turns():
            turn = orjson.loads(body)
            answer = Answer(([], [turn["ids"]], [turn["logprobs"]], [turn["reason"]]))
            answer.versions = [turn["version"]]
            self._answers[turn["key"]].append(answer)
            self._timed.update(turn.get("timed", {}))

    async def forget(self) -> None:
        """Begin the next attempt from nothing."""
        self._clear()
        await self._journal.forget_turns(*self._key)

    def _clear(self) -> None:
        self._known, self._calls = [], 0
        self._repeated, self._new, self._waiting = 0, 0, False
        self._digest = hashlib.blake2b(digest_size=16)
        for table in (self._answers, self._timed, self._fresh, self._turns):
            table.clear()

    def serving(self, route: Route) -> RecordedServer:
        """Return a server that asks `route` only for replies that are not recorded yet."""
        return RecordedServer(route, self)

    def executing(self, execute: ExecuteTool) -> ExecuteTool:
        """Return `execute`, with the earlier result if only its times differ."""

        async def executed(call: ToolCall) -> ToolResult:
            result = await execute(call)
            self._calls += 1
            if not _TIME.search(result.content):
                return result
            before = self._timed.get(str(self._calls))
            if before is not None and _TIME.sub("", before) == _TIME.sub("", result.content):
                result = replace(result, content=before)
            self._fresh[str(self._calls)] = result.content
            return result

        return executed

    def recall(self, prompt: list[int], options: dict[str, Any]) -> Answer | None:
        """Return the reply that was sampled for this prompt before; None when there is none (left)."""
        found = self._answers.get(self._name(prompt, options)) if self._answers else None
        if not found:
            return None
        self._fresh.clear()
        self._repeated += 1
        answer = found.popleft()
        again = Answer((prompt, *answer[1:]))
        again.versions = answer.versions
        return again

    def note_request(self, prompt: list[int], options: dict[str, Any]) -> None:
        """Note that a server is asked for the reply to this prompt."""
        self._name(prompt, options)  # which takes in the prompt
        self._waiting = True

    def note_refusal(self) -> None:
        """Note that the servers would not answer the last request."""
        self._waiting = False

    def note_reply(self, prompt: list[int], options: dict[str, Any], answer: Answer) -> None:
        """Keep a server's reply until `accept` journals it. The prompt is kept as its difference from the last one and
        its reply: the results of tools, normally."""
        seen, replies, logprobs, reasons = answer
        if seen != prompt or not len(replies) == len(logprobs) == len(reasons) == 1:
            return  # not to be trained on, and so not to be repeated
        (version,) = getattr(answer, "versions", [None])
        turn = {
            "key": self._name(prompt, options),
            "added": prompt[self._kept :],
            "ids": replies[0],
            "logprobs": logprobs[0],
            "reason": reasons[0],
            "version": version,
            "timed": dict(self._fresh),
        }
        self._turns[id(replies[0])] = prompt, turn

    def accept(self, ids: Sequence[int]) -> None:
        """Journal the turn with this reply: its conversation has taken it in. A reply that was given again is there
        already."""
        prompt, turn = self._turns.pop(id(ids), ([], None))
        if turn is None:
            return
        if prompt is self._known:
            self._digest.update(array("q", ids))
            self._known = [*prompt, *ids]
        self.journal(orjson.dumps(turn))
        self._fresh.clear()
        self._waiting = False
        self._new += 1

    def _name(self, prompt: list[int], options: dict[str, Any]) -> str:
        """Return a digest of this request; the prompt becomes the known one."""
        if prompt is not self._known:  # else it was looked for just now
            self._kept = len(self._known)
            if prompt[: self._kept] != self._known:
                self._kept, self._digest = 0, hashlib.blake2b(digest_size=16)
            self._digest.update(array("q", prompt[self._kept :]))
            self._known = prompt
        digest = self._digest.copy()
        digest.update(repr(sorted(options.items())).encode())
        return digest.hexdigest()


class RecordedServer(TokenServer):
    """The inference servers of one rollout, by way of its recording."""

    def __init__(self, route: Route, recording: TurnRecording) -> None:
        super().__init__(route.config)
        self.initialized = True
        self._route = route
        self._recording = recording

    @property
    def outage_s(self) -> float:
        return self._route.outage_s

    @property
    def lost_tokens(self) -> int:
        return self._route.lost_tokens

    @property
    def max_model_len(self) -> int | None:
        return self._route.max_model_len

    async def alive(self) -> bool:
        return await self._route.alive()

    async def tokens_and_logprobs_completion(self, **kwargs: Any) -> Answer:
        """See `Route`."""
        prompt, recording = kwargs["input_ids"], self._recording
        options = {name: kwargs.get(name) for name in ("temperature", "top_p", "stop")}
        # Turns of earlier versions are found by the others alone.
        options |= {name: kwargs[name] for name in ("top_k", "min_p") if kwargs.get(name)}
        # What was sampled with more room may leave none now, which would be no fault of the model's.
        options["window"] = self.max_model_len
        answer = recording.recall(prompt, options)
        if answer is None:
            recording.note_request(prompt, options)
            try:
                answer = await self._route.tokens_and_logprobs_completion(**kwargs)
            except EngineError as error:
                if not isinstance(error.__cause__, EngineDown):
                    recording.note_refusal()
                raise
            recording.note_reply(prompt, options, answer)
        return answer

    def accept(self, ids: Sequence[int]) -> None:
        """Keep this reply: the conversation has taken it in."""
        self._recording.accept(ids)
