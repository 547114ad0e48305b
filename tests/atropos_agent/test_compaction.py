"""Conversations that outgrow the window: whatever is done, each part is what the model was given and sampled."""

from bisect import bisect_left

import pytest
from worked import Model, assert_every_token_is_accounted_for, call

from atropos_agent.agent import AtroposAgent
from atropos_agent.compaction import NOTED, SUM_UP, TAKE_NOTES
from atropos_agent.harvest import MASKED_SUMMARY, UNUSED_SUMMARY
from atropos_agent.types import AgentConfig, StopReason
from tools.base import ToolRegistry

WINDOW, REPLY, LOOKS, FEW = 2400, 200, 14, 7
"""Cut results take room too: by them alone there is an end to what a rollout can look at."""


async def look(number: int) -> str:
    """Look at something long.

    Args:
        number: of what there is.
    """
    return f"{number}: begins " + "the quick brown fox jumps over the lazy dog " * 30 + f" {number} ends"


class Looking(Model):
    """Looks at one thing after the other, and does as it is asked where little room is left."""

    def __init__(self, template, summary, looks):
        super().__init__(template, [])
        self.summary, self.looks, self.looked = summary, looks, 0

    async def tokens_and_logprobs_completion(self, **kwargs):
        said = self.template.decode(list(kwargs["input_ids"]))[-600:]
        if SUM_UP[-30:] in said:
            text = self.summary
        elif TAKE_NOTES[-20:] in said:
            text = call("look", number=0)
        else:
            self.looked += 1
            text = call("look", number=self.looked) if self.looked <= self.looks else "done"
        self.texts = [("hm</think>" if self.template.opens_thinking else "") + text]
        return await super().tokens_and_logprobs_completion(**kwargs)


async def play(template, policy, *, summary="I have looked.", looks=LOOKS, **config):
    server = Looking(template, summary, looks)
    config = AgentConfig(
        **{"max_tokens": REPLY, "max_total_tokens": WINDOW, "max_steps": 60, "compaction": policy} | config
    )
    result = await AtroposAgent(server, ToolRegistry([look]), config, template=template).run("Look at everything.")
    return result, server.exchanges


@pytest.mark.parametrize("policy", ["cut", "summary", "notes"])
async def test_a_rollout_goes_on_beyond_its_window_in_parts_that_are_the_truth(any_tokenizer, template, policy):
    result, exchanges = await play(template, policy, looks=FEW if policy == "cut" else LOOKS)
    assert result.stop_reason is StopReason.ANSWERED
    assert_every_token_is_accounted_for(result, exchanges)
    assert max(len(row.tokens) for row in result.segments) <= WINDOW
    metadata = result.metadata["conversations"]["compaction"]
    assert metadata["count"] >= (1 if policy == "cut" else 2)
    assert metadata["tokens_saved"] > WINDOW / 8


async def test_without_compaction_a_rollout_ends_with_its_window(smollm2):
    result, _ = await play(smollm2, "none")
    assert (result.stop_reason, result.metadata) == (StopReason.MAX_TOKENS, {})


def shared(one, other):
    """How many tokens two prompts begin with alike."""
    most = min(len(one), len(other))
    return bisect_left(range(most), True, key=lambda end: list(one[: end + 1]) != list(other[: end + 1]))


def computed(exchanges):
    """The tokens of prompts that no prefix cache of an inference server can hold."""
    held, found = [], 0
    for one in exchanges:
        known = max((shared(one.prompt, before) for before in held), default=0)
        held.append([*one.prompt, *one.ids])
        found += len(one.prompt) - known
    return found


async def test_a_turn_costs_no_more_than_without_beyond_the_summary_and_its_head_stays_cached(smollm2):
    window = {"max_total_tokens": 12_000, "max_tokens": 400, "max_steps": 100, "looks": 60}
    without, all_at_once = await play(smollm2, "none", **window | {"max_total_tokens": 100_000})
    result, exchanges = await play(smollm2, "summary", **window)
    assert without.stop_reason is result.stop_reason is StopReason.ANSWERED
    summaries = result.metadata["conversations"]["compaction"]["summaries"]
    begun = summaries[0]
    assert [one.prompt for one in exchanges[:begun]] == [one.prompt for one in all_at_once[:begun]]
    metadata = sum(len(exchanges[number].ids) for number in summaries)
    assert sum(len(one.ids) for one in exchanges) - metadata == sum(len(one.ids) for one in all_at_once)
    with_it, alone = computed(exchanges) / len(exchanges), computed(all_at_once) / len(all_at_once)
    print(f"computed tokens a turn {with_it:.0f}, without {alone:.0f}; {len(summaries)} summaries")
    assert with_it < 1.3 * alone
    opening = smollm2.encode("<|im_start|>assistant\n", continues=True)
    head = len(exchanges[0].prompt) - len(opening)
    assert all(shared(exchanges[0].prompt, exchanges[number + 1].prompt) >= head for number in summaries)


async def test_the_model_goes_on_from_the_task_its_summary_and_the_last_turns(smollm2):
    result, exchanges = await play(smollm2, "summary")
    metadata = result.metadata["conversations"]["compaction"]
    at = metadata["summaries"][0] + 1
    shown = smollm2.decode(exchanges[at].prompt)
    assert shown.startswith(smollm2.decode(exchanges[0].prompt).removesuffix("<|im_start|>assistant\n"))
    assert "I have looked." in shown
    assert shown.count("<|im_start|>assistant") == 3, "two turns and the next reply"
    assert f"{at - 1} ends" in shown and "1: begins" not in shown
    assert all(result.steps[number].content == "I have looked." for number in metadata["summaries"])


async def test_summaries_are_trained_or_counted_as_the_option_says(smollm2):
    trained, _ = await play(smollm2, "summary")
    assert trained.metadata["conversations"]["untrained_tokens"] == {}
    masked, exchanges = await play(smollm2, "summary", trains_summaries=False)
    summaries = masked.metadata["conversations"]["compaction"]["summaries"]
    lost = sum(len(exchanges[number].ids) for number in summaries)
    assert masked.metadata["conversations"]["untrained_tokens"] == {MASKED_SUMMARY: lost}
    assert_every_token_is_accounted_for(masked, exchanges)


@pytest.mark.parametrize("summary", ["", "word " * 500, call("look", number=1)])
async def test_a_summary_that_can_not_be_gone_on_from_is_not_trained(smollm2, summary):
    result, exchanges = await play(smollm2, "summary", summary=summary, looks=FEW)
    assert result.stop_reason is StopReason.ANSWERED
    assert set(result.metadata["conversations"]["untrained_tokens"]) == {UNUSED_SUMMARY}
    assert_every_token_is_accounted_for(result, exchanges)


async def test_old_results_are_cut_to_their_ends_and_the_last_turns_stay(smollm2):
    _, exchanges = await play(smollm2, "cut", looks=FEW)
    shown = next(text for one in exchanges if "cut out" in (text := smollm2.decode(one.prompt)))
    first = shown[shown.index("1: begins") :].split("</tool_response>")[0]
    assert "characters were cut out here" in first and first.rstrip().endswith("1 ends")
    assert "cut out" not in shown.split("<tool_response>")[-1]


async def test_the_model_begins_again_with_its_notes(smollm2):
    result, exchanges = await play(smollm2, "notes")
    shown = [smollm2.decode(one.prompt) for one in exchanges]
    at = next(place for place, text in enumerate(shown) if NOTED in text)
    assert TAKE_NOTES in shown[at - 1] and shown[at].count("<|im_start|>assistant") == 1
    assert result.steps[at - 1].results[0].content.startswith("0: begins")
