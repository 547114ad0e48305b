"""An agent's requests with other texts, for an agent that sums up as pi does."""

from __future__ import annotations

from typing import Any

import pytest

from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import AUTO
from atropos_agent.gateway import Session
from atropos_agent.gateway.forest import Turn
from atropos_agent.gateway.requests import GatewayRequest, HistoryMessage
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, AgentConfig
from envs.agents.naming import FOREIGN
from envs.lab.recording import RecordedRollout, Script, _replies

PI = FOREIGN["pi"]
BASH = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]
SYSTEM = HistoryMessage("system", "Work. Today is 2026-11-27.")
RECORDED = Script("Look twice.", ["look", "look"], ["one is seen", "two is seen"], ["I have seen one thing."])
OTHER = Script("Watch.", ["watch", "wait"], ["a bird", "a cat"], ["There was nothing but a bird."], "2031-02-03")


def said(*texts: str) -> list[HistoryMessage]:
    return [SYSTEM, *(HistoryMessage("user", text) for text in texts)]


@pytest.fixture
async def recorded(smollm2_tokenizer: Any) -> RecordedRollout:
    """The agent sums up after its first look, and goes on from that alone."""
    template = ChatTemplate(smollm2_tokenizer)
    fitted = FittedFormat.of(AUTO, template)
    works, sums = _replies(PI, fitted, RECORDED)
    server = ScriptedServer([works[0], sums[0], *works[1:]], smollm2_tokenizer)
    turns: list[Turn] = []
    async with Session(server, template, fitted, AgentConfig(max_tokens=512)) as session:

        async def ask(given: list[HistoryMessage], tools: Any = BASH, behind: int | None = None) -> None:
            turn = session.ask(GatewayRequest(given, tools=tools, behind=behind))
            assert turn.work is not None
            await turn.work
            turn.taken = True
            turns.append(turn)

        await ask(said(RECORDED.task))
        await ask([HistoryMessage("user", f"Sum up: {RECORDED.task} {RECORDED.outputs[0]}")], tools=())
        await ask(said(f"Until now: {RECORDED.summaries[0]}"))
        answer = turns[-1].sampled.answer  # type: ignore[union-attr]
        await ask([HistoryMessage("tool", RECORDED.outputs[1], call_id=answer.calls[0].id)], behind=answer.number)
    return RecordedRollout(PI, RECORDED, turns)


async def test_other_texts_stand_in_the_agents_own_words(recorded: RecordedRollout, smollm2_tokenizer: Any) -> None:
    rows = await recorded.rows(OTHER, smollm2_tokenizer, 0)
    first, second, summary = (row.full_text for row in rows)
    assert "Today is 2031-02-03." in first and "Watch." in first and '"command": "watch"' in first
    assert "Until now: There was nothing but a bird." in second and "a cat" in second and '"command": "wait"' in second
    assert "Sum up: Watch. a bird" in summary
    assert not any(text in "".join((first, second, summary)) for text in (*RECORDED.texts, "2026"))


async def test_each_reply_is_trained_once_the_summary_too(recorded: RecordedRollout, smollm2_tokenizer: Any) -> None:
    rows = await recorded.rows(OTHER, smollm2_tokenizer, 0)
    trained = [smollm2_tokenizer.decode([one for one in row.masked_tokens if one != IGNORED]) for row in rows]
    assert [text.count("<|im_end|>") for text in trained] == [1, 2, 1]
    assert trained[2] == "There was nothing but a bird.<|im_end|>"


async def test_a_dialogue_may_end_where_it_went_on_from_a_summary(
    recorded: RecordedRollout, smollm2_tokenizer: Any
) -> None:
    rows = await recorded.rows(OTHER, smollm2_tokenizer, 2)
    assert [row.turns for row in rows] == [1, 1, 1]
