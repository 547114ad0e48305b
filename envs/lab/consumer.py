"""A stand-in for a trainer: registers with the trainer API, pulls batches and checks every row.

It trains nothing. It tolerates a slow, missing or restarted API, and prints
nothing: it yields batches and keeps statistics.

Source of the protocol: atroposlib/api/server.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import httpx
import orjson

from atropos_agent.engines.http import client_of
from envs.delivery.row_check import check_group

logger = logging.getLogger(__name__)

REMEMBERED_ROWS = 100_000
"""Number of rows remembered to recognise a second delivery."""


class ConsumerError(RuntimeError):
    """The API can't be used as it is; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch as the API handed it out. problems: of its groups; duplicates: rows seen before."""

    number: int
    groups: Sequence[Mapping[str, Any]]
    rows: int
    problems: Sequence[str] = ()
    duplicates: int = 0


@dataclass(slots=True)
class Statistics:
    """A consumer's statistics. Signal, tokens and scores are counted of groups without problems.

    good_rows: rows of such groups; score_sum: over these. groups_with_signal: scores differ.
    api_errors: requests failed, answered with 5xx, or sent to an API without a known trainer.
    registrations: more than one when the API was restarted.
    """

    batches: int = 0
    groups: int = 0
    groups_with_signal: int = 0
    groups_with_problems: int = 0
    rows: int = 0
    good_rows: int = 0
    duplicates: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    score_sum: float = 0.0
    api_errors: int = 0
    registrations: int = 0
    state: str = "not connected"
    problems: list[str] = field(default_factory=list)
    """The first 100 problems, in words."""

    @property
    def score_mean(self) -> float | None:
        """Return the mean per good row; None before the first."""
        return self.score_sum / self.good_rows if self.good_rows else None


class Consumer:
    """Registers as the trainer at `url` and pulls batches. Use it as `async with`.

    batch_size: rows of a batch. max_token_len: its longest row. num_steps: the most batches requested of
    environments. poll_s: pause between questions, in seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        batch_size: int,
        max_token_len: int = 32768,
        num_steps: int = 1_000_000,
        name: str = "consumer",
        poll_s: float = 0.5,
    ) -> None:
        self.url = url.rstrip("/")
        self.batch_size = batch_size
        self.poll_s = poll_s
        self.statistics = Statistics()
        self.starting_step = 0
        """The trainer's own, sent with its registration."""
        self._registration = {
            "wandb_group": name,
            "wandb_project": name,
            "batch_size": batch_size,
            "max_token_len": max_token_len,
            "checkpoint_dir": "",
            "save_checkpoint_interval": -1,
            "num_steps": num_steps,
        }
        self._registered = False
        self._seen: OrderedDict[int, None] = OrderedDict()
        # Forming a batch can keep the API busy for tens of seconds.
        self._http = client_of(self.url, timeout=httpx.Timeout(120.0, connect=5.0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    async def batches(self, n: int | None = None) -> AsyncIterator[Batch]:
        """Yield batches as they come, `n` of them or without end. Raises ConsumerError."""
        while n is None or self.statistics.batches < n:
            groups = await self._pull()
            if groups:
                self.statistics.batches += 1
                yield await asyncio.to_thread(self._check, groups)
            else:
                await asyncio.sleep(self.poll_s)

    async def _pull(self) -> Sequence[Mapping[str, Any]]:
        """Return the groups of the next batch; none when there is no batch yet."""
        try:
            if not self._registered:
                await self._register()
            answer = await self._ask("GET", "/batch")
        except httpx.TransportError as error:
            self._mark_disconnected(f"waiting for the trainer API ({type(error).__name__})")
            return ()
        except httpx.HTTPStatusError as error:
            if error.response.status_code < 500:
                raise ConsumerError(
                    f"{self.url} does not answer like an Atropos API: {error}; start one with `run-api`"
                ) from error
            # Either it was reset, which the next registration finds out, or it could not write
            # the batch as JSON and has lost it.
            self._mark_disconnected(f"the trainer API failed with status {error.response.status_code}")
            return ()
        if answer.get("status") == "error":
            self._mark_disconnected("the trainer API was restarted")
            return ()
        self.statistics.state = "pulling batches"
        return answer.get("batch") or ()

    def _mark_disconnected(self, state: str) -> None:
        if self.statistics.state != state:
            logger.warning("%s: %s", self.url, state)
        self.statistics.api_errors += 1
        self.statistics.state = state
        self._registered = False

    async def _register(self) -> None:
        """Make sure the API knows a trainer with our batch size."""
        if await self._known_batch_size() <= 0:
            await self._ask("POST", "/register", json=self._registration | {"starting_step": self.starting_step})
            self.statistics.registrations += 1
            if await self._known_batch_size() <= 0:
                # Rows that came before the trainer wedge the API: it takes no registration and
                # never hands them out. Only emptying it helps.
                logger.warning("%s held rows from before the registration, which nobody can pull; resetting", self.url)
                await self._ask("GET", "/reset_data", parse=False)
                await self._ask("POST", "/register", json=self._registration | {"starting_step": self.starting_step})
        known = await self._known_batch_size()
        if known != self.batch_size:
            raise ConsumerError(
                f"the API at {self.url} has a trainer with batch size {known}, not {self.batch_size}; "
                "use another port, or stop that trainer and restart `run-api`"
            )
        self._registered = True

    async def _known_batch_size(self) -> int:
        answer = await self._ask("GET", "/info")
        size = answer.get("batch_size")
        if not isinstance(size, int):
            raise ConsumerError(f"{self.url} does not answer like an Atropos API; start one with `run-api`")
        return size

    async def _ask(self, method: str, path: str, *, parse: bool = True, **kwargs: Any) -> dict[str, Any]:
        response = await self._http.request(method, path, **kwargs)
        response.raise_for_status()
        if not parse:
            return {}
        try:
            answer = await asyncio.to_thread(orjson.loads, response.content)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise ConsumerError(f"{self.url}{path} answered with something else than JSON; is it an Atropos API?")
        return answer

    def _check(self, groups: Sequence[Mapping[str, Any]]) -> Batch:
        batch = Batch(number=self.statistics.batches, groups=groups, rows=0)
        for group in groups:
            problems = check_group(group)
            self._count(group, problems)
            rows = len(group.get("tokens") or ())
            batch = replace(
                batch,
                rows=batch.rows + rows,
                problems=(*batch.problems, *problems),
                duplicates=batch.duplicates + (0 if problems else self._count_duplicates(group)),
            )
        return batch

    def _count(self, group: Mapping[str, Any], problems: Sequence[str]) -> None:
        statistics = self.statistics
        statistics.groups += 1
        statistics.rows += len(group.get("tokens") or ())
        if problems:
            statistics.groups_with_problems += 1
            statistics.problems.extend(problems[: 100 - len(statistics.problems)])
            return
        statistics.good_rows += len(group["tokens"])
        statistics.groups_with_signal += len(set(group["scores"])) > 1
        statistics.score_sum += sum(group["scores"])
        statistics.tokens += sum(map(len, group["tokens"]))
        statistics.trained_tokens += sum(value != -100 for masks in group["masks"] for value in masks)

    def _count_duplicates(self, group: Mapping[str, Any]) -> int:
        """Count the rows delivered before: the API stores a group again when its sender missed the answer."""
        found = 0
        for name, tokens in zip(group["generation_params"]["rollout_ids"], group["tokens"], strict=True):
            row = hash((name, tuple(tokens)))
            found += row in self._seen
            self._seen[row] = None
        while len(self._seen) > REMEMBERED_ROWS:
            self._seen.popitem(last=False)
        self.statistics.duplicates += found
        return found
