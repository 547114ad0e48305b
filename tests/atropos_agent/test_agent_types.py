"""Rows, counts and configurations that can't be are refused where they are made."""

import pytest

from atropos_agent.types import IGNORED, NO_LOGPROB, AgentConfig, AgentResult, Counts, SequenceData, StopReason

ROW = SequenceData("ab", (1, 2), (IGNORED, 2), (NO_LOGPROB, -0.5))


@pytest.mark.parametrize(
    ("masked", "logprobs", "expected"),
    [
        ((IGNORED,), (1.0, -0.5), "as many"),
        ((IGNORED, 3), (1.0, -0.5), "its mask says 3"),
        ((IGNORED, 2), (1.0, 0.5), "impossible logprob 0.5"),
        ((IGNORED, 2), (1.0, float("-inf")), "impossible logprob"),
        ((IGNORED, IGNORED), (1.0, -0.5), "not trained but has the logprob"),
    ],
)
def test_a_row_that_contradicts_itself_is_refused(masked, logprobs, expected):
    with pytest.raises(ValueError, match=expected):
        SequenceData("ab", (1, 2), masked, logprobs)


def test_counts_of_two_parts_are_added():
    total = Counts(tool_calls=2, refused_tokens=5) + Counts(tool_calls=1, malformed_calls=1)
    assert total == Counts(tool_calls=3, malformed_calls=1, refused_tokens=5)


@pytest.mark.parametrize(
    "options", [{"max_tokens": 0}, {"max_steps": -1}, {"max_seconds": 0}, {"tool_role": "assistant"}]
)
def test_a_configuration_that_can_not_work_is_refused_by_name(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"AgentConfig.{name}"):
        AgentConfig(**options)


def test_a_result_scores_each_row_and_counts_what_is_trained():
    result = AgentResult(True, "b", (), StopReason.ANSWERED, (ROW, ROW), ({"role": "user", "content": "x"},))
    assert result.sampled_tokens == 2
    assert [item["scores"] for item in result.to_scored_data(0.5)] == [0.5, 0.5]
    result.to_messages()[0]["content"] = "changed"
    assert result.messages[0]["content"] == "x"
