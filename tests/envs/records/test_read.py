"""Saved rollouts are read back, also those that version 0.1 wrote."""

import json
from typing import Any

import pytest

from atropos_agent.types import Counts, Exchange, StopReason
from envs.records.read import UnknownFormat, from_atif, read_newest, read_rollouts

REPLY = '<think>look</think>\nI look.\n<tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>'


def saved_by_0_1(**changes: Any) -> dict[str, Any]:
    """A line of `rollouts.jsonl` in format 1: numbers and counts are among the metadata."""
    step = {
        "step_id": 2,
        "source": "agent",
        "message": REPLY,
        "llm_call_count": 1,
        "metrics": {"prompt_tokens": 1, "completion_tokens": 2, "completion_token_ids": [5, 6], "logprobs": [-0.5, 0]},
        "extra": {
            "atropos_agent": {
                "index": 0,
                "segment": 1,
                "start": 1,
                "finish_reason": "stop",
                "engine_s": 0.5,
                "tools_s": 0.25,
            }
        },
        "reasoning_content": "look",
        "tool_calls": [
            {
                "tool_call_id": "call_0",
                "function_name": "look",
                "arguments": {"at": "x"},
                "extra": {"atropos_agent": {"id": "call_0"}},
            }
        ],
        "observation": {
            "results": [
                {
                    "content": "Error: wrong arguments",
                    "extra": {
                        "atropos_agent": {"is_error": True, "done": False, "metadata": {"malformed": True, "n": 1}}
                    },
                    "source_call_id": "call_0",
                }
            ]
        },
    }
    ours = {
        "format": 1,
        "id": "r-1",
        "task": {"id": "t", "tags": ["python"], "band": "bugs"},
        "verdict": {
            "reward": 0.25,
            "explanation": "all passed",
            "tests": {"a": "passed"},
            "metrics": {"judged": 1.0, "share": 0.5},
            "turn_advantages": [-0.5],
        },
        "timings_s": {"agent": 2.0},
        "metadata": {"step": 7, "evaluating": False},
        "result": {
            "success": True,
            "final_response": "I look.",
            "stop_reason": "max_steps",
            "error": None,
            "metadata": {"tool_calls": 1, "malformed_calls": 1, "tool_errors": 1, "without_tokens": False, "kept": "x"},
            "messages": [{"role": "user", "content": "Go."}, {"role": "assistant", "content": REPLY}],
        },
        "segments": [
            {
                "tokens": [1, 5, 6],
                "masked_tokens": [-100, 5, 6],
                "logprobs": [1.0, -0.5, 0],
                "text": "…",
                "metadata": {"segment": 1, "turns": 1, "policy_version": 3},
            }
        ],
        "record": [{"extends": False, "given": [1], "ids": [5, 6], "logprobs": [-0.5, 0]}],
        **changes,
    }
    return {
        "schema_version": "ATIF-v1.8",
        "session_id": "r-1",
        "agent": {"name": "atropos-agent", "version": "0.1.0", "model_name": "m"},
        "steps": [{"step_id": 1, "source": "user", "message": "Go."}, step],
        "extra": {"atropos_agent": ours},
    }


def test_what_0_1_had_among_the_metadata_is_read_into_fields() -> None:
    result = from_atif(saved_by_0_1()).result
    (row,) = result.segments
    assert (row.segment, row.turns, row.policy_version) == (1, 1, 3)
    assert result.counts == Counts(tool_calls=1, malformed_calls=1, tool_errors=1)
    assert result.carries_tokens
    assert result.metadata == {"kept": "x"}
    (told,) = result.steps[0].results
    assert told.malformed
    assert told.metadata == {"n": 1}
    assert result.steps[0].content == "I look."


def test_the_verifiers_reward_of_0_1_is_told_from_the_shaped_one() -> None:
    saved = from_atif(saved_by_0_1())
    assert (saved.verdict.reward, saved.verdict.solved) == (1.0, True)
    assert (saved.reward.value, saved.reward.turn_advantages) == (0.25, (-0.5,))
    assert (saved.seat.step, saved.seat.evaluating, saved.seat.group) == (7, False, None)


def test_a_file_of_0_1_is_read_as_it_was(tmp_path) -> None:
    file = tmp_path / "rollouts.jsonl"
    file.write_text(json.dumps(saved_by_0_1()) + "\n")
    (saved,) = read_rollouts(tmp_path)
    assert (saved.id, saved.task_id, saved.tags, saved.band) == ("r-1", "t", ("python",), "bugs")
    assert saved.result.conditions.model == "m"
    assert saved.result.stop_reason is StopReason.MAX_STEPS
    assert saved.result.record == (Exchange(False, (1,), (5, 6), (-0.5, 0)),)
    assert saved.result.steps[0].calls[0].arguments == {"at": "x"}


def test_the_newest_rollouts_are_found_from_the_end(tmp_path) -> None:
    lines = [json.dumps({**saved_by_0_1(), "session_id": str(n)}) + "\n" for n in range(6)]
    (tmp_path / "rollouts.jsonl").write_text("".join(lines[:4]) + '{"torn\n' + "".join(lines[4:]))
    size = len(lines[0])
    for most, most_bytes, found, complete in [
        (9, 10**9, 6, True),
        (7, 10**9, 6, True),
        (3, 10**9, 2, False),
        (2, 10**9, 2, False),
        (9, 2 * size + 8, 2, False),
        (9, 2 * size - 1, 1, False),
        (9, 10, 0, False),
    ]:
        rollouts, all_of_them = read_newest(tmp_path, most, most_bytes)
        assert (len(rollouts), all_of_them) == (found, complete), (most, most_bytes)


def test_a_damaged_line_costs_that_rollout_alone(tmp_path, caplog) -> None:
    whole, later = json.dumps(saved_by_0_1()), json.dumps(saved_by_0_1(format=9))
    damaged = [whole.replace('"verdict"', '"verdixt"'), json.dumps(saved_by_0_1(timings_s={"agent": "soon"}))]
    file = tmp_path / "rollouts.jsonl"
    file.write_text("\n".join([whole, *damaged, whole]))
    assert len(list(read_rollouts(file))) == 2
    assert [f"skipped line {number} of {file}" in caplog.text for number in (1, 2, 3, 4)] == [False, True, True, False]
    file.write_text(f"{whole}\n{later}\n")
    with pytest.raises(UnknownFormat, match=r"line 2 of .*upgrade"):
        list(read_rollouts(file))


def test_an_evaluation_of_0_1_without_token_ids_says_so() -> None:
    said = saved_by_0_1()["extra"]["atropos_agent"]["result"]
    result = {**said, "metadata": {"without_tokens": True}}
    assert not from_atif(saved_by_0_1(result=result, segments=[])).result.carries_tokens
