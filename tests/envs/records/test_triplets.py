"""Triplets of prompt, response and reward."""

import json
from dataclasses import replace

import pytest
from samples import decode, rollout

from envs.records.atif import to_atif
from envs.records.read import from_atif
from envs.records.triplets import rollout_triplets, span_triplets

SAVED = from_atif(to_atif(rollout(reward=0.5)))


def test_each_turn_is_a_triplet_of_what_the_model_saw_and_said():
    first, second = rollout_triplets(SAVED)
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]
    assert len(second["prompt"]) == 4
    assert second["response"] == "It is fixed."
    assert {first["reward"], second["reward"]} == {0.5}
    assert "".join(map(decode, second["response_ids"])).startswith("It is fixed.")
    (row,) = SAVED.result.segments
    assert second["prompt_ids"] == list(row.tokens[: SAVED.result.steps[1].start])
    assert all(logprob <= 0 for logprob in second["logprobs"])


def attribute(key, value):
    kind = "doubleValue" if isinstance(value, float) else "stringValue"
    return {"key": key, "value": {kind: value}}


def line(*spans):
    found = [{"traceId": trace, "attributes": [attribute(*item) for item in told.items()]} for trace, told in spans]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": found}]}]})


def test_spans_are_joined_by_their_trace():
    asked, said = [{"role": "user", "parts": []}], [{"role": "assistant", "parts": []}]
    call = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(said),
    }
    lines = [
        line(("a", call), ("b", call)),
        "",
        line(("a", {"atropos.reward": 0.25, "atropos.task.id": "t"}), ("a", {"gen_ai.operation.name": "execute_tool"})),
    ]
    lines[2] = lines[2].replace('"attributes": [', '"attributes": [{"key": "of another program", "value": {}}, ')
    assert list(span_triplets(lines)) == [
        {"rollout": "a", "task": "t", "prompt": asked, "response": said, "reward": 0.25}
    ]


@pytest.mark.parametrize("bad", ["{", "[]", '{"spans": []}'])
def test_a_line_that_is_none_is_named(bad):
    with pytest.raises(ValueError, match="line 2"):
        list(span_triplets([line(), bad]))


def test_replies_of_other_conversations_get_no_foreign_prompt():
    first, second = SAVED.result.steps
    beside = [replace(first, index=number, response=f"another's {number}") for number in range(3)]
    steps = [*beside, replace(first, index=3), replace(second, index=4)]
    several = replace(SAVED, result=replace(SAVED.result, steps=steps))
    *others, third, last = rollout_triplets(several)
    assert [one["prompt"] for one in others] == [[], [], []], "their conversations are in no messages"
    assert [third["prompt"], last["prompt"]] == [one["prompt"] for one in rollout_triplets(SAVED)]
    assert all(one["prompt_ids"] for one in others)


def test_a_side_call_after_examples_gets_no_prompt_of_theirs():
    example = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    system, *rest = SAVED.result.messages
    first, second = SAVED.result.steps
    title = replace(second, index=2, branch="side call")
    result = replace(SAVED.result, messages=[system, *example, *rest], steps=[first, second, title])
    *own, beside = rollout_triplets(replace(SAVED, result=result))
    assert [len(one["prompt"]) for one in own] == [4, 6]
    assert beside["prompt"] == [], "its words are those of another's reply"


def test_a_reply_that_a_shorter_history_lacks_gets_no_prompt_of_a_later_one_like_it():
    first, second = SAVED.result.steps
    steps = [first, replace(first, index=1), replace(second, index=2)]
    gone, *there = rollout_triplets(replace(SAVED, result=replace(SAVED.result, steps=steps)))
    assert gone["prompt"] == []
    assert [len(one["prompt"]) for one in there] == [2, 4]


def test_a_reply_before_an_edit_gets_no_prompt_that_it_was_not_given():
    first, second = SAVED.result.steps
    (row,) = SAVED.result.segments
    edited = replace(row, segment=1, tokens=(row.tokens[0] + 1, *row.tokens[1:]), masked_tokens=row.masked_tokens)
    result = replace(
        SAVED.result,
        steps=[first, replace(second, segment=1)],
        segments=[row, edited],
        metadata={"gateway": {"changes": {"edited": 1}}},
    )
    before, after = rollout_triplets(replace(SAVED, result=result))
    assert (before["prompt"], len(after["prompt"])) == ([], 4)
    assert before["prompt_ids"] == list(row.tokens[: first.start])
