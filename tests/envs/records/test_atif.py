"""Saved rollouts: valid ATIF, read back without loss, whatever the model wrote."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import atif as published
import orjson
import pytest
from descriptors import used_up
from hypothesis import given
from hypothesis import strategies as st
from samples import renamed, rollout, row, task

from atropos_agent.tokens.drift import Drift
from atropos_agent.types import AgentResult, AgentStep, Conditions, Counts, SequenceData, StopReason
from envs.records import atif
from envs.records.atif import KEY, RolloutWriter, parts, to_atif
from envs.records.read import UnknownFormat, from_atif, read_at, read_newest, read_rollouts, read_scores
from envs.types import Reward, Rollout, Seat, TestStatus, Verdict
from tools.base import ToolCall, ToolResult


def through_json(original: Rollout) -> dict[str, Any]:
    document: dict[str, Any] = orjson.loads(orjson.dumps(to_atif(original)))
    return document


def assert_same(original: Rollout) -> None:
    saved = from_atif(through_json(original))
    assert saved.result == original.result
    assert saved.verdict == original.verdict
    assert (saved.id, saved.task_id, saved.tags) == (original.id, original.task.id, tuple(original.task.tags))
    assert saved.timings_s == original.timings_s
    assert (saved.reward, saved.seat) == (original.reward, original.seat)
    assert (saved.verdict.output, saved.verdict.patch) == (original.verdict.output, original.verdict.patch)
    assert saved.work == original.work


def test_a_rollout_is_read_back_as_it_was() -> None:
    assert_same(rollout())


def test_a_verifiers_metric_of_any_name_is_no_reward() -> None:
    original = rollout()
    assert_same(replace(original, verdict=replace(original.verdict, metrics={"judged": 0.25})))


def test_a_rollout_without_a_step_or_a_message_is_read_back_too() -> None:
    empty = replace(rollout().result, steps=(), messages=(), segments=(), stop_reason=None, error="engine: gone")
    document = through_json(replace(rollout(), result=empty))
    assert [step["message"] for step in document["steps"]] == ["Fix sum.py."]
    assert_same(replace(rollout(), result=empty))


def test_the_document_is_valid_by_the_published_schema() -> None:
    schema = {"type": "function", "function": {"name": "terminal", "description": "", "parameters": {}}}
    original = rollout()
    conditions = Conditions("smollm2", (schema,), {"temperature": 1.0})
    document = through_json(replace(original, result=replace(original.result, conditions=conditions)))
    trajectory = published.Trajectory.model_validate(document)
    assert trajectory.schema_version == "ATIF-v1.8"
    assert trajectory.agent.model_name == "smollm2"
    assert trajectory.agent.tool_definitions == [schema]


def test_the_steps_hold_the_conversation_in_atifs_own_fields() -> None:
    steps = through_json(rollout())["steps"]
    assert [step["source"] for step in steps] == ["system", "user", "agent", "agent"]
    assert [step["step_id"] for step in steps] == [1, 2, 3, 4]
    reply = steps[2]
    assert reply["reasoning_content"] == "look"
    assert [call["function_name"] for call in reply["tool_calls"]] == ["terminal", "termnal"]
    assert len({call["tool_call_id"] for call in reply["tool_calls"]}) == 2
    sources = [result.get("source_call_id") for result in reply["observation"]["results"]]
    assert sources == [call["tool_call_id"] for call in reply["tool_calls"]] + [None]


def test_a_steps_metrics_are_its_own_sampled_tokens() -> None:
    original = rollout()
    data = original.result.segments[0]
    steps = [step for step in through_json(original)["steps"] if step["source"] == "agent"]
    for step, saved in zip(original.result.steps, steps, strict=True):
        reply = slice(step.start, step.start + step.completion_tokens)
        assert saved["metrics"]["completion_token_ids"] == list(data.tokens[reply])
        assert saved["metrics"]["logprobs"] == list(data.logprobs[reply])
        assert "prompt_token_ids" not in saved["metrics"]
    assert sum(len(saved["metrics"]["logprobs"]) for saved in steps) == data.trained


def test_a_steps_metrics_are_of_its_own_segment_where_an_earlier_one_has_no_row() -> None:
    original = rollout()
    (data,) = original.result.segments
    steps = tuple(replace(step, segment=1) for step in original.result.steps)
    later = replace(data, segment=1)
    document = through_json(replace(original, result=replace(original.result, segments=(later,), steps=steps)))
    saved = [step for step in document["steps"] if step["source"] == "agent"]
    assert sum(len(step["metrics"]["logprobs"]) for step in saved) == data.trained


def test_examples_before_the_first_sampled_reply_are_marked_as_not_sampled() -> None:
    example = {"role": "assistant", "content": "An example."}
    original = rollout()
    messages = (original.result.messages[0], example, *original.result.messages[1:])
    document = through_json(replace(original, result=replace(original.result, messages=messages)))
    published.Trajectory.model_validate(document)
    assert document["steps"][1] == {
        "step_id": 2,
        "source": "agent",
        "message": "An example.",
        "is_copied_context": True,
        "llm_call_count": 0,
    }
    assert len(from_atif(document).result.steps) == 2


def test_replies_beside_the_conversation_do_not_make_the_opening_end_at_an_example() -> None:
    result = rollout().result
    system, *rest = result.messages
    opening = [system, {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}, rest[0]]
    title = replace(result.steps[-1], index=2, branch="side call")
    beside = replace(result, messages=(*opening, *rest[1:]), steps=(*result.steps, title))
    assert list(atif.opening_messages(beside)) == opening


def test_the_size_grows_with_the_tokens_and_not_with_their_square() -> None:
    def size(turns: int) -> int:
        data = row(*[("some forty characters of a model's reply", True)] * turns)
        length = len(data.tokens) // turns
        steps = tuple(
            AgentStep(index=n, response="x", start=n * length + 1, prompt_tokens=n * length, completion_tokens=41)
            for n in range(turns)
        )
        result = replace(rollout().result, steps=steps, segments=(data,), messages=())
        return len(orjson.dumps(to_atif(replace(rollout(), result=result))))

    assert size(80) - size(40) < 1.1 * (size(40) - size(1))


def test_hidden_tests_and_the_solution_are_never_saved() -> None:
    text = orjson.dumps(to_atif(rollout())).decode()
    for secret in ("/hidden/tests", "/hidden/solution", "hidden-env", "the-reference-patch"):
        assert secret not in text


def test_arguments_that_json_cannot_hold_cost_nothing_but_themselves() -> None:
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    arguments = {"nan": float("nan"), "big": 10**30, "huge": 10**6000, "lone": "\ud800", "deep": deep, "fine": [1, 2.5]}
    call = ToolCall("terminal", arguments, "c")
    step = AgentStep(0, "…", calls=(call,), results=(ToolResult("ok", call=call),), completion_tokens=1)
    document = through_json(replace(rollout(), result=replace(rollout().result, steps=(step,))))
    published.Trajectory.model_validate(document)
    saved = from_atif(document).result.steps[0].calls[0].arguments
    assert saved["fine"] == [1, 2.5]
    assert (saved["nan"], saved["big"], saved["lone"]) == ("nan", str(10**30), "?")
    assert "bits" in saved["huge"]


def test_a_reward_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        to_atif(rollout(reward=float("nan")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": "ATIF-v2.0"}, "ATIF-v2.0"),
        ({"schema_version": None}, "not an ATIF document"),
        ({"extra": {}}, "no token rows"),
        ({"extra": None}, "no token rows"),
        ({"extra": {KEY: {"format": 3}}}, "upgrade atropos-agent"),
    ],
)
def test_other_formats_and_later_versions_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownFormat, match=message):
        from_atif(through_json(rollout()) | change)


@pytest.mark.parametrize("part", ["verdict", "segments", "result", "task", "id"])
def test_a_document_that_lacks_a_part_is_damaged(part: str) -> None:
    document = through_json(rollout())
    del document["extra"][KEY][part]
    with pytest.raises(ValueError, match=part):
        from_atif(document)


def test_a_document_with_a_changed_mask_is_refused() -> None:
    document = through_json(rollout())
    row_of_it = document["extra"][KEY]["segments"][0]
    place = next(n for n, token in enumerate(row_of_it["masked_tokens"]) if token != -100)
    row_of_it["masked_tokens"][place] += 1
    with pytest.raises(ValueError, match=f"token {place}"):
        from_atif(document)


async def test_rollouts_written_at_once_are_all_read(tmp_path: Path) -> None:
    async with RolloutWriter(tmp_path / "run") as writer:
        await asyncio.gather(*(writer.write(renamed(rollout(), f"r-{n}")) for n in range(20)))
        saved = list(read_rollouts(tmp_path / "run"))
    assert {item.id for item in saved} == {f"r-{n}" for n in range(20)}


async def test_a_rollout_is_saved_while_no_other_file_can_be_opened(tmp_path: Path) -> None:
    async with RolloutWriter(tmp_path) as writer, asyncio.timeout(120):
        await writer.write(renamed(rollout(), "before"))
        with used_up():
            await writer.write(renamed(rollout(), "meanwhile"))
    assert [item.id for item in read_rollouts(tmp_path)] == ["before", "meanwhile"]


async def test_a_torn_line_costs_itself_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with RolloutWriter(tmp_path) as writer:
        await writer.write(renamed(rollout(), "first"))
        await writer.write(renamed(rollout(), "torn"))
    writer.path.write_bytes(writer.path.read_bytes()[:-100])
    with caplog.at_level(logging.WARNING):
        assert [item.id for item in read_rollouts(writer.path)] == ["first"]
    assert "skipped line 2" in caplog.text
    async with RolloutWriter(tmp_path) as again:
        await again.write(renamed(rollout(), "after"))
    assert [item.id for item in read_rollouts(writer.path)] == ["first", "after"]


async def test_a_long_file_goes_on_in_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = []
    for start in range(3):
        async with RolloutWriter(tmp_path) as writer:
            for n in range(5):
                monkeypatch.setattr(atif, "PART", 2 * places[0].size if places else 10**9)
                places.append(await writer.write(renamed(rollout(), f"r-{start}-{n}")))
    names = [f"r-{start}-{n}" for start in range(3) for n in range(5)]
    assert [item.id for item in read_rollouts(tmp_path)] == names
    assert [read_at(tmp_path, place).id for place in places] == names
    assert len(parts(tmp_path)) == 8
    assert [path.stat().st_size + start for start, path in parts(tmp_path)][:-1] == [s for s, _ in parts(tmp_path)][1:]
    assert len(list(read_scores(tmp_path))) == 15
    newest, complete = read_newest(tmp_path, 4)
    assert ([item.id for item in newest], complete) == (names[-4:], False)
    (tmp_path / "rollouts.jsonl").unlink()
    assert read_at(tmp_path, places[-1]).id == names[-1], "what was moved away costs nothing else"
    with pytest.raises(FileNotFoundError):
        read_at(tmp_path, places[0])


async def test_a_file_that_is_deleted_meanwhile_takes_no_later_rollout_with_it(tmp_path, caplog):
    async with RolloutWriter(tmp_path) as writer:
        await writer.write(renamed(rollout(), "before"))
        writer.path.unlink()
        places = [await writer.write(renamed(rollout(), name)) for name in ("after", "later")]
    assert [read_at(tmp_path, place).id for place in places] == ["after", "later"]
    assert caplog.text.count("rollouts.jsonl was deleted") == 1


async def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    writer = RolloutWriter(tmp_path)
    with pytest.raises(ValueError, match="async with"):
        await writer.write(rollout())


def test_a_line_of_a_later_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    later = through_json(rollout()) | {"schema_version": "ATIF-v2.0"}
    path.write_text(json.dumps(through_json(rollout())) + "\n" + json.dumps(later) + "\n")
    with pytest.raises(UnknownFormat, match="line 2 of"):
        list(read_rollouts(path))


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)
finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def rows(draw: st.DrawFn) -> SequenceData:
    tokens = draw(st.lists(st.integers(0, 200_000), max_size=30))
    odds = [draw(st.none() | st.floats(-1e6, 0)) for _ in tokens]
    return SequenceData(
        draw(texts),
        tuple(tokens),
        tuple(-100 if logprob is None else token for token, logprob in zip(tokens, odds, strict=True)),
        tuple(1.0 if logprob is None else logprob for logprob in odds),
        draw(st.integers(0, 2)),
        draw(st.integers(0, 30)),
        draw(st.none() | st.integers(0, 100)),
    )


@st.composite
def steps(draw: st.DrawFn, index: int) -> AgentStep:
    calls = draw(st.lists(st.builds(ToolCall, texts, objects, texts), max_size=3))
    links: st.SearchStrategy[ToolCall | None] = st.none() | st.sampled_from(calls) if calls else st.none()
    results = st.builds(ToolResult, texts, st.booleans(), st.booleans(), links, objects, st.booleans())
    return AgentStep(
        index=index,
        response=draw(texts),
        thinking=draw(st.none() | texts),
        calls=tuple(calls),
        results=tuple(draw(st.lists(results, max_size=3))),
        correction=draw(st.none() | texts),
        finish_reason=draw(texts),
        segment=draw(st.integers(0, 2)),
        start=draw(st.integers(0, 30)),
        prompt_tokens=draw(st.integers(0, 10**6)),
        completion_tokens=draw(st.integers(0, 30)),
        engine_s=draw(finite),
        tools_s=draw(finite),
        content=draw(texts),
        said=tuple(draw(st.lists(_messages("system", "user", "developer"), max_size=2))) if index else (),
    )


def _messages(*roles: str) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries({"role": st.sampled_from(roles), "content": texts})


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    messages = _messages("system", "user", "assistant", "tool")
    return Rollout(
        id=draw(texts),
        task=task(draw(texts), tags=tuple(draw(st.lists(texts, max_size=3)))),
        result=AgentResult(
            success=draw(st.booleans()),
            final_response=draw(texts),
            steps=tuple(draw(steps(index)) for index in range(draw(st.integers(0, 3)))),
            stop_reason=draw(st.none() | st.sampled_from(StopReason)),
            segments=tuple(draw(st.lists(rows(), max_size=2))),
            messages=tuple(draw(st.lists(messages, max_size=5))),
            error=draw(st.none() | texts),
            metadata=draw(objects),
            counts=Counts(*draw(st.lists(st.integers(0, 10**6), min_size=5, max_size=5))),
            carries_tokens=draw(st.booleans()),
            drift=draw(st.none() | st.sampled_from(Drift)),
        ),
        verdict=Verdict(
            draw(finite),
            draw(texts),
            draw(st.dictionaries(texts, st.sampled_from(TestStatus), max_size=3)),
            draw(st.dictionaries(texts, finite, max_size=3)),
        ),
        reward=Reward(draw(finite), tuple(draw(st.lists(finite, max_size=3))), draw(texts)),
        seat=Seat(draw(st.none() | st.integers(0, 99)), step=draw(st.integers(0, 99)), evaluating=draw(st.booleans())),
        timings_s=draw(st.dictionaries(texts, finite, max_size=3)),
    )


@given(rollouts())
def test_every_rollout_is_read_back_as_it_was_and_is_valid_atif(original: Rollout) -> None:
    assert_same(original)
    published.Trajectory.model_validate(through_json(original))
