"""Read rollouts saved by this or an earlier version (`envs.records.atif`)."""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson

from atropos_agent.formats.hermes import Hermes
from atropos_agent.types import (
    AgentResult,
    AgentStep,
    Conditions,
    Counts,
    Exchange,
    Message,
    SequenceData,
    StopReason,
    TeacherScores,
)
from envs.records.atif import FILE_NAME, FORMAT, KEY, Place, parts
from envs.types import Reward, Seat, TestStatus, Verdict
from tools.base import ToolCall, ToolResult

logger = logging.getLogger(__name__)

OLD_FORMATS = (1,)
"""Output of version 0.1."""


_COUNTS = tuple(field.name for field in fields(Counts))


class UnknownFormat(ValueError):
    """A document of another format or of a later version than this code reads."""


@dataclass(frozen=True, slots=True)
class SavedRollout:
    """A rollout as read back: everything of `Rollout`, with the task's name and digest in place of the task."""

    id: str
    task_id: str
    result: AgentResult
    verdict: Verdict
    reward: Reward
    seat: Seat = Seat()
    tags: Sequence[str] = ()
    band: str = ""
    timings_s: Mapping[str, float] = field(default_factory=dict)
    work: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    digest: str = ""


def from_atif(document: Mapping[str, Any]) -> SavedRollout:
    """Return the rollout in a document of `to_atif`, of this version or an earlier one.

    Raises UnknownFormat for another format or a later version, ValueError for a damaged document.
    """
    ours = _check_format(document)
    try:
        return _rollout(ours, document)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the rollout document is damaged: {type(error).__name__}: {error}") from error


def read_at(directory: Path | str, place: Place) -> SavedRollout:
    """Return the rollout at a place in a directory's saved rollouts. Raises ValueError when damaged, OSError."""
    known = [(0, Path(directory) / FILE_NAME), *parts(directory)]
    start, path = max(part for part in known if part[0] <= place.offset)
    with path.open("rb") as file:
        file.seek(place.offset - start)
        line = file.read(place.size)
    if zlib.crc32(line) != place.crc:
        raise ValueError(f"the rollout at byte {place.offset - start} of {path.name} is damaged")
    return from_atif(orjson.loads(line))


def read_rollouts(path: Path | str) -> Iterator[SavedRollout]:
    """Yield the rollouts of a file, or of all parts of `rollouts.jsonl` in a directory, one at a time.

    Torn and damaged lines are skipped with a warning. Raises UnknownFormat, with the line, for a document of another
    format.
    """
    for _, saved in read_places(path):
        yield saved


def read_places(path: Path | str) -> Iterator[tuple[Place, SavedRollout]]:
    """Yield the rollouts of `read_rollouts` with their places, for `read_at`."""
    path = Path(path)
    for start, part in _parts(path) if path.is_dir() else [(0, path)]:
        with part.open("rb") as file:
            yield from _parse_lines(file, part, start)


def _parse_lines(lines: Iterable[bytes], path: Path, start: int = 0) -> Iterator[tuple[Place, SavedRollout]]:
    """Read lines of a file. They are numbered from the first of `lines`, which is at the place `start`."""
    offset = start
    for number, line in enumerate(lines, start=1):
        place = Place(offset, len(line), zlib.crc32(line))
        offset += len(line)
        if not line.strip():
            continue
        try:
            saved = from_atif(orjson.loads(line))
        except UnknownFormat as error:
            raise UnknownFormat(f"line {number} of {path}: {error}") from error
        except ValueError as error:
            logger.warning("skipped line %d of %s, which is torn or damaged: %s", number, path, error)
            continue
        yield place, saved


def read_newest(directory: Path | str, most: int, most_bytes: int = 64 * 2**20) -> tuple[list[SavedRollout], bool]:
    """Return the last saved rollouts of a directory in their order, and whether they are all.

    most, most_bytes: their number and total size at most, so the time does not grow with the files. Torn lines are
    skipped. Raises as `read_rollouts` does.
    """
    lines: list[bytes] = []
    complete = True
    for _, path in reversed(_parts(directory)):
        found, complete = _tail(path, most_bytes)
        most_bytes -= sum(map(len, found))
        lines[:0] = found
        if not complete:
            break
    return [saved for _, saved in _parse_lines(lines[-most:], Path(directory))], complete and len(lines) <= most


def read_scores(directory: Path | str) -> Iterator[tuple[str, float]]:
    """Yield the task's id and the reward of each saved rollout of a directory, without its tokens.

    Torn lines are skipped. Raises OSError.
    """
    for _, saved in read_from(directory):
        try:
            yield saved["task"]["id"], saved["verdict"]["reward"]
        except (KeyError, TypeError):
            continue


def read_from(directory: Path | str, offset: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield `extra.atropos_agent` of documents, each with the offset after it, to continue there later.

    offset: the beginning in the directory's saved rollouts, counted over all `parts`. Torn and unfinished lines are
    skipped. Raises OSError.
    """
    for start, path in _parts(directory):
        with path.open("rb") as file:
            place = start + file.seek(max(0, offset - start))
            for line in file:
                place += len(line)
                try:
                    ours = orjson.loads(line)["extra"][KEY]
                except (orjson.JSONDecodeError, KeyError, TypeError):
                    continue
                yield place, ours


def _parts(directory: Path | str) -> list[tuple[int, Path]]:
    """Return the parts of a directory's rollouts; `rollouts.jsonl` if there is none, so an error names it."""
    return parts(directory) or [(0, Path(directory) / FILE_NAME)]


def _tail(path: Path, most_bytes: int) -> tuple[list[bytes], bool]:
    """Return the last whole lines of a file, and whether they are all of it."""
    with path.open("rb") as file:
        end = file.seek(0, 2)
        begin = max(0, end - most_bytes)
        file.seek(begin)
        lines = list(BytesIO(file.read(end - begin)))
    return (lines, True) if begin == 0 else (lines[1:], False)


def read_counts(ours: Mapping[str, Any]) -> Counts:
    """Return the counts of a run, from a document's `extra.atropos_agent`."""
    result = ours["result"]
    # Format 1 had them among the metadata.
    saved = result["counts"] if "counts" in result else result["metadata"]
    return Counts(**{name: int(saved.get(name, 0)) for name in _COUNTS})


def read_verdict_reward(ours: Mapping[str, Any]) -> float:
    """Return the verifier's own reward, from a document's `extra.atropos_agent`."""
    verdict = ours["verdict"]
    # Format 1 had it among the metrics where the reward was shaped.
    shaped = verdict["metrics"] if ours["format"] in OLD_FORMATS else {}
    return float(shaped.get("judged", verdict["reward"]))


def _rollout(ours: Mapping[str, Any], document: Mapping[str, Any]) -> SavedRollout:
    """Read the output of `envs.records.atif._rollout`, and the agent's result."""
    verdict = ours["verdict"]
    return SavedRollout(
        id=ours["id"],
        task_id=ours["task"]["id"],
        tags=tuple(ours["task"]["tags"]),
        band=ours["task"]["band"],
        digest=ours["task"].get("digest", ""),
        timings_s=_floats(ours["timings_s"]),
        reward=_reward(ours),
        seat=_seat(ours),
        verdict=Verdict(
            reward=read_verdict_reward(ours),
            explanation=verdict["explanation"],
            tests={name: TestStatus(status) for name, status in verdict["tests"].items()},
            metrics=_floats(verdict["metrics"]),
            seen={str(sign): str(what) for sign, what in verdict.get("seen", {}).items()},
            output=str(verdict.get("output", "")),
            patch=str(verdict.get("patch", "")),
        ),
        result=_result(ours, document),
        work=tuple(ours.get("work", ())),
    )


def _reward(ours: Mapping[str, Any]) -> Reward:
    if ours["format"] in OLD_FORMATS:
        return Reward(ours["verdict"]["reward"], tuple(ours["verdict"].get("turn_advantages", ())))
    reward = ours["reward"]
    return Reward(reward["value"], tuple(reward["turn_advantages"]), reward["explanation"])


def _seat(ours: Mapping[str, Any]) -> Seat:
    if ours["format"] in OLD_FORMATS:
        old = ours["metadata"]
        return Seat(step=int(old.get("step", 0)), evaluating=bool(old.get("evaluating", False)))
    return Seat(**ours["seat"])


def _result(ours: Mapping[str, Any], document: Mapping[str, Any]) -> AgentResult:
    result, steps, agent = ours["result"], document["steps"], document["agent"]
    extras = result["metadata"]
    if ours["format"] in OLD_FORMATS:
        extras = {name: value for name, value in extras.items() if name not in {*_COUNTS, "without_tokens"}}
    return AgentResult(
        success=result["success"],
        final_response=result["final_response"],
        steps=tuple(_steps(steps)),
        stop_reason=result["stop_reason"] and StopReason(result["stop_reason"]),
        segments=tuple(_segment(segment, place) for place, segment in enumerate(ours["segments"])),
        messages=tuple(result["messages"]),
        error=result["error"],
        metadata=extras,
        record=tuple(
            Exchange(
                item["extends"],
                tuple(item["given"]),
                tuple(item["ids"]),
                tuple(item["logprobs"]),
                item.get("back", 1),
                item.get("untrained", ""),
            )
            for item in ours.get("record", ())
        ),
        counts=read_counts(ours),
        carries_tokens=result.get("carries_tokens", not result["metadata"].get("without_tokens", False)),
        drift=result.get("drift"),
        conditions=Conditions(
            agent.get("model_name") or "", tuple(agent.get("tool_definitions", ())), ours.get("sampling", {})
        ),
    )


def _segment(segment: Mapping[str, Any], place: int) -> SequenceData:
    # Format 1 had its number and the like among the metadata.
    facts = segment.get("metadata", segment)
    return SequenceData(
        full_text=segment["text"],
        tokens=tuple(segment["tokens"]),
        masked_tokens=tuple(segment["masked_tokens"]),
        logprobs=tuple(segment["logprobs"]),
        segment=facts.get("segment", place),
        turns=facts.get("turns", 0),
        policy_version=facts.get("policy_version"),
        thinking_kept=facts.get("thinking_kept", False),
        branch=facts.get("branch", "main"),
        experts=facts.get("experts"),
        teacher=TeacherScores(**segment["teacher"]) if "teacher" in segment else None,
    )


def _steps(steps: Sequence[Mapping[str, Any]]) -> Iterator[AgentStep]:
    """Yield the sampled replies, each with the messages before it; those before the first one are the result's."""
    between: list[Message] | None = None
    for step in steps:
        if KEY in step.get("extra", {}):
            yield replace(_step(step), said=tuple(between or ()))
            between = []
        elif between is not None:
            between.append({"role": step.get("extra", {}).get("role", step["source"]), "content": step["message"]})


def _step(step: Mapping[str, Any]) -> AgentStep:
    ours, metrics = step["extra"][KEY], step["metrics"]
    calls = {
        call["tool_call_id"]: ToolCall(call["function_name"], call["arguments"], call["extra"][KEY]["id"])
        for call in step.get("tool_calls", ())
    }
    results, correction = [], None
    for item in step.get("observation", {}).get("results", ()):
        extra = item["extra"][KEY]
        if extra.get("correction"):
            correction = item["content"]
        else:
            call = calls.get(item.get("source_call_id"))
            results.append(_observation(item["content"], extra, call))
    return AgentStep(
        index=ours["index"],
        response=step["message"],
        thinking=step.get("reasoning_content"),
        calls=tuple(calls.values()),
        results=tuple(results),
        correction=correction,
        finish_reason=ours["finish_reason"],
        segment=ours["segment"],
        start=ours["start"],
        prompt_tokens=metrics["prompt_tokens"],
        completion_tokens=metrics["completion_tokens"],
        engine_s=ours["engine_s"],
        tools_s=ours["tools_s"],
        # Format 1 did not say it, and knew no tool format but Hermes.
        content=ours["content"] if "content" in ours else Hermes().parse(step["message"]).content,
        policy_version=ours.get("policy_version"),
        branch=ours.get("branch", "main"),
    )


def _observation(content: str, extra: Mapping[str, Any], call: ToolCall | None) -> ToolResult:
    metadata = dict(extra["metadata"])
    # Format 1 had it among the metadata.
    malformed = extra["malformed"] if "malformed" in extra else bool(metadata.pop("malformed", False))
    return ToolResult(content, extra["is_error"], extra["done"], call, metadata, malformed)


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    """Return numbers written by `plain`; NaN and infinity are words there."""
    return {name: float(value) for name, value in values.items()}


def _check_format(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return our part of a document. Raises UnknownFormat for one of another format."""
    found = document.get("schema_version") if isinstance(document, Mapping) else None
    schema = re.fullmatch(r"ATIF-v(\d+)\.\d+", str(found))
    if not schema:
        raise UnknownFormat(f"not an ATIF document: its schema_version is {found!r}")
    if schema[1] != "1":
        raise UnknownFormat(f"schema_version {found} is not read by this version, which reads ATIF-v1")
    ours = (document.get("extra") or {}).get(KEY)
    if not isinstance(ours, Mapping):
        raise UnknownFormat(f"an ATIF document without extra.{KEY}: it holds no token rows of ours")
    if ours.get("format") not in (*OLD_FORMATS, FORMAT):
        raise UnknownFormat(
            f"extra.{KEY}.format is {ours.get('format')!r} and this version of atropos-agent reads up to {FORMAT}; "
            "upgrade atropos-agent to read newer files"
        )
    return ours
