"""Write rollouts: one ATIF document a line, with token ids, masks and logprobs.

ATIF is Harbor's Agent Trajectory Interchange Format (RFC 0001 of the Harbor framework), version
1.8. A document is valid ATIF as it stands. Everything else lies under one key of the `extra`
objects, `"atropos_agent"`:

- `extra` of the document: `format` (2), the rollout's own values by `_rollout` (the verdict with the verifier's
  `output` and the `patch`, the `sampling`, and in `work` the agent's exact work), `result` (the run's end,
  its counts, and the exact chat `messages`) and `record`: every request and its reply in token ids, for
  the check of rows (`atropos_agent.tokens.record`), and `segments`: per row of training data `tokens`,
  `masked_tokens` (-100 where not trained), `logprobs` (1.0 where not trained) and `text`, the arrays of
  equal length, with `segment`, `turns`, `policy_version` and `branch`.
- `extra` of an agent's step: `index`, `segment`, `start`, `finish_reason`, `engine_s`, `tools_s`,
  `content` (the reply without thinking and calls), `policy_version`, `branch` if it is not "main".
- messages after the first reply, beside results of calls (a user's, a sub-agent's beginning), are steps of their own.
- `extra` of tool calls and observations: the fields of `ToolCall` and `ToolResult` beyond ATIF's;
  `correction` is true if the model got a message about malformed calls.

A step's `metrics` hold the sampled tokens (`completion_token_ids`, `logprobs`). ATIF's
`prompt_token_ids` is left out, because the history repeated in every step has quadratic size: the
prompt of a step is `segments[segment].tokens[:start]`.

`format` rises when a reader of the old format would misread the new one; `envs.records.read` reads all
of them. Format 1 (version 0.1) had counts, segments' numbers and the like in dictionaries called
`metadata`. Never saved: the hidden tests, the reference solution, and the task's own metadata. The
verdict's explanation may quote the verifier's output, so saved rollouts are for people, not for the model.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any, Self

import orjson

from atropos_agent import __version__
from atropos_agent.types import IGNORED, AgentResult, AgentStep, Branch, Exchange, Message, SequenceData
from envs.records.disk import append, close_line, retry_until_space
from envs.records.plain import plain, plain_text
from envs.types import Rollout
from tools.base import ToolCall, ToolResult

SCHEMA_VERSION = "ATIF-v1.8"
FORMAT = 2
KEY = "atropos_agent"
FILE_NAME = "rollouts.jsonl"
PART = 4 * 2**30
"""Bytes of a part of the rollouts."""
TOLD = frozenset({Branch.MAIN, Branch.FORK})
"""The kinds of replies that a result's messages may hold."""
PACKAGE_VERSION = __version__
"""Read once, because a process without free descriptors can't open the file."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a line in the saved rollouts: offset, counted over all `parts`, length in bytes, and crc32."""

    offset: int
    size: int
    crc: int


def to_atif(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as an ATIF document for `orjson.dumps`.

    Values outside of JSON (NaN in a call's arguments, integers beyond 64 bits, nesting deeper than 32) are
    written as text. Raises ValueError when the reward is not finite.
    """
    result = rollout.result
    for reward in (rollout.verdict.reward, rollout.reward.value):
        if not math.isfinite(reward):
            raise ValueError(f"rollout {rollout.id}: the reward {reward} is not finite")
    steps = [*_opening_steps(rollout), *_agent_steps(result)]
    other = result.metadata.get("agent") or {"name": "atropos-agent", "package": PACKAGE_VERSION}
    agent: dict[str, Any] = {"name": str(other["name"]), "version": str(other["package"])}
    if result.conditions.model:
        agent["model_name"] = plain_text(result.conditions.model)
    if result.conditions.tools:
        agent["tool_definitions"] = [plain(tool) for tool in result.conditions.tools]
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": rollout.id,
        "trajectory_id": rollout.id,
        "agent": agent,
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
        "final_metrics": {
            "total_prompt_tokens": sum(step.prompt_tokens for step in result.steps),
            "total_completion_tokens": sum(step.completion_tokens for step in result.steps),
            "total_steps": len(steps),
        },
        "extra": {
            KEY: {
                "format": FORMAT,
                **_rollout(rollout),
                "result": _result(result),
                "segments": [_segment(segment) for segment in result.segments],
                "record": [_exchange(exchange) for exchange in result.record],
            }
        },
    }


def parts(directory: Path | str) -> list[tuple[int, Path]]:
    """Return the files of a directory's rollouts, in order, each with the offset of its beginning.

    The first is `rollouts.jsonl`; after one of `PART` bytes comes `rollouts.<offset>.jsonl`. You may move files of
    finished groups away during a run.
    """
    first = Path(directory) / FILE_NAME
    found = [(0, first)] if first.exists() and not first.is_fifo() else []
    for path in Path(directory).glob(f"{first.stem}.*{first.suffix}"):
        offset = path.name.split(".")[1]
        if offset.isdecimal():
            found.append((int(offset), path))
    return sorted(found)


def end_of(directory: Path | str) -> int:
    """Return the offset after a directory's last rollout."""
    return max((start + path.stat().st_size for start, path in parts(directory)), default=0)


class RolloutWriter:
    """Append rollouts to `rollouts.jsonl` in a directory, and to its further `parts`. Makes a missing directory.

    Used as `async with`. A line has reached the operating system when `write` returns, so it survives the
    process. A torn last line of a dead process is closed first, so only that line is lost. What is missing, because
    files were deleted or cut, keeps its place: new rollouts begin in a further part.

    after: the offset after the rollouts that are known to have been saved.
    """

    def __init__(self, directory: Path | str, after: int = 0) -> None:
        self.path = Path(directory) / FILE_NAME
        self._after = after
        self._file: FileIO | None = None
        self._start = 0
        """Offset of the present part."""
        # A lock between threads: a cancelled `write` leaves its thread behind, still writing.
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        """Open the file. Raises OSError when it can't be opened."""
        await asyncio.to_thread(self._open)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._close)

    async def write(self, rollout: Rollout) -> Place:
        """Append a rollout. The work happens in a thread, off the event loop, and waits while the disk is
        full. Raises OSError."""
        return await retry_until_space(self.path, lambda: self._write(rollout))

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._start, last = [(0, self.path), *parts(self.path.parent)][-1]
        if end_of(self.path.parent) < self._after:
            self._start, last = self._after, self._part(self._after)
        close_line(last)
        # Unbuffered, so that nothing is left to be written when a write has failed.
        self._file = last.open("a+b", buffering=0)

    def _close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _write(self, rollout: Rollout) -> Place:
        line = orjson.dumps(to_atif(rollout)) + b"\n"
        with self._lock:
            if self._file is None:
                raise ValueError(f"{self.path} is not open; use RolloutWriter in an `async with` block")
            offset = self._file.seek(0, 2)
            if deleted := not os.fstat(self._file.fileno()).st_nlink:
                logger.error("%s was deleted; new rollouts go to a further part", self._file.name)
            if offset >= PART or deleted:
                self._file = self._next_part(self._file, offset)
                offset = 0
            try:
                append(self._file, line)
            except OSError:
                self._file.truncate(offset)
                raise
        return Place(self._start + offset, len(line), zlib.crc32(line))

    def _next_part(self, full: FileIO, size: int) -> FileIO:
        file = self._part(self._start + size).open("a+b", buffering=0)
        self._start += size
        full.close()
        return file

    def _part(self, start: int) -> Path:
        return self.path.with_name(f"{self.path.stem}.{start}{self.path.suffix}")


def _rollout(rollout: Rollout) -> dict[str, Any]:
    """Return the saved values of a rollout beside the agent's result; `envs.records.read._rollout` reads them."""
    verdict, reward, seat = rollout.verdict, rollout.reward, rollout.seat
    return {
        "id": rollout.id,
        "task": {
            "id": rollout.task.id,
            "tags": list(rollout.task.tags),
            "band": str(rollout.task.metadata.get("band", "")),
            **({"digest": rollout.task.digest} if rollout.task.digest else {}),
        },
        "verdict": {
            "reward": float(verdict.reward),
            "explanation": plain_text(verdict.explanation),
            "tests": {plain_text(name): status.value for name, status in verdict.tests.items()},
            "metrics": plain(verdict.metrics),
            "seen": {plain_text(sign): plain_text(what) for sign, what in verdict.seen.items()},
            "output": plain_text(verdict.output),
            "patch": plain_text(verdict.patch),
        },
        "reward": {
            "value": float(reward.value),
            "turn_advantages": list(map(float, reward.turn_advantages)),
            "explanation": plain_text(reward.explanation),
        },
        "seat": {
            **{"group": seat.group, "member": seat.member, "step": seat.step, "evaluating": seat.evaluating},
            **({"agent": seat.agent} if seat.agent else {}),
        },
        "timings_s": plain(rollout.timings_s),
        "sampling": plain(rollout.result.conditions.sampling),
        # As `envs.judging.saved_changes` packs it: plain already.
        "work": list(rollout.work),
    }


def _result(result: AgentResult) -> dict[str, Any]:
    return {
        "success": result.success,
        "final_response": plain_text(result.final_response),
        "stop_reason": result.stop_reason and result.stop_reason.value,
        "error": None if result.error is None else plain_text(result.error),
        "counts": asdict(result.counts),
        "carries_tokens": result.carries_tokens,
        "drift": result.drift,
        "metadata": plain(result.metadata),
        "messages": plain(result.messages),
    }


def _segment(segment: SequenceData) -> dict[str, Any]:
    return {
        "tokens": list(map(int, segment.tokens)),
        "masked_tokens": list(map(int, segment.masked_tokens)),
        "logprobs": list(map(float, segment.logprobs)),
        "text": plain_text(segment.full_text),
        "segment": segment.segment,
        "turns": segment.turns,
        "policy_version": segment.policy_version,
        "thinking_kept": segment.thinking_kept,
        "branch": segment.branch,
        **({"experts": segment.experts} if segment.experts is not None else {}),
        **({"teacher": asdict(segment.teacher)} if segment.teacher is not None else {}),
    }


def _exchange(exchange: Exchange) -> dict[str, Any]:
    return {
        "extends": exchange.extends,
        "given": list(map(int, exchange.given)),
        "ids": list(map(int, exchange.ids)),
        "logprobs": list(map(float, exchange.logprobs)),
        **({"back": exchange.back} if exchange.back != 1 else {}),
        **({"untrained": exchange.untrained} if exchange.untrained else {}),
    }


def opening_messages(result: AgentResult) -> Sequence[Message]:
    """Return the messages before the first sampled reply. Of a rollout with several conversations, these are the
    messages up to the first of the user's: with it each one begins."""
    messages, sampled = result.messages, sum(step.branch in TOLD for step in result.steps)
    replies = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if 0 < sampled <= len(replies):
        return messages[: replies[-sampled]]
    if not sampled:
        return messages
    return messages[: next((place for place, message in enumerate(messages, 1) if message["role"] == "user"), None)]


def _opening_steps(rollout: Rollout) -> Iterator[dict[str, Any]]:
    """Yield the messages before the first sampled reply; replies given as examples may be among them."""
    opening = opening_messages(rollout.result)
    if not opening:
        yield {"source": "user", "message": plain_text(rollout.task.instruction)}
    for message in opening:
        if message["role"] == "assistant":
            text = plain_text(message["content"])
            yield {"source": "agent", "message": text, "is_copied_context": True, "llm_call_count": 0}
        else:
            yield _message_step(message)


def _message_step(message: Message) -> dict[str, Any]:
    role, text = message["role"], plain_text(message["content"])
    if role in ("system", "user"):
        return {"source": role, "message": text}
    return {"source": "user", "message": text, "extra": {"role": role}}


def _agent_steps(result: AgentResult) -> Iterator[dict[str, Any]]:
    used: set[str] = set()
    for step in result.steps:
        yield from map(_message_step, step.said)
        calls = [_call(call, step.index, place, used) for place, call in enumerate(step.calls)]
        results = [_observation(item, step.calls, calls) for item in step.results]
        if step.correction is not None:
            results.append({"content": plain_text(step.correction), "extra": {KEY: {"correction": True}}})
        entry: dict[str, Any] = {
            "source": "agent",
            "message": plain_text(step.response),
            "llm_call_count": 1,
            "metrics": _metrics(step, result.segments),
            "extra": {
                KEY: {
                    "index": step.index,
                    "segment": step.segment,
                    "start": step.start,
                    "finish_reason": step.finish_reason,
                    "engine_s": step.engine_s,
                    "tools_s": step.tools_s,
                    "content": plain_text(step.content),
                    "policy_version": step.policy_version,
                    **({"branch": step.branch} if step.branch != "main" else {}),
                }
            },
        }
        if step.thinking is not None:
            entry["reasoning_content"] = plain_text(step.thinking)
        if calls:
            entry["tool_calls"] = calls
        if results:
            entry["observation"] = {"results": results}
        yield entry


def _metrics(step: AgentStep, segments: Sequence[SequenceData]) -> dict[str, Any]:
    metrics: dict[str, Any] = {"prompt_tokens": step.prompt_tokens, "completion_tokens": step.completion_tokens}
    row = next((row for row in segments if row.segment == step.segment), None)
    if row is not None:
        reply = slice(step.start, step.start + step.completion_tokens)
        if IGNORED not in row.masked_tokens[reply]:
            metrics["completion_token_ids"] = list(map(int, row.tokens[reply]))
            metrics["logprobs"] = list(map(float, row.logprobs[reply]))
    return metrics


def _call(call: ToolCall, step: int, place: int, used: set[str]) -> dict[str, Any]:
    """Return ATIF's tool call, with a unique id; the model's own may be missing or repeated."""
    name = plain_text(call.id)
    if not name or name in used:
        name = f"step-{step}-call-{place}"
    used.add(name)
    return {
        "tool_call_id": name,
        "function_name": plain_text(call.name),
        "arguments": plain(call.arguments),
        "extra": {KEY: {"id": plain_text(call.id)}},
    }


def _observation(result: ToolResult, calls: Sequence[ToolCall], saved: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "content": plain_text(result.content),
        "extra": {
            KEY: {
                "is_error": result.is_error,
                "done": result.done,
                "malformed": result.malformed,
                "metadata": plain(result.metadata),
            }
        },
    }
    if result.call in calls:
        entry["source_call_id"] = saved[calls.index(result.call)]["tool_call_id"]
    return entry
