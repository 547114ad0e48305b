"""Agents that are written on turns, what their model replies, and what must hold of their rows."""

import asyncio
import json
from collections import Counter

from truth import PlaybackServer, Turn

from atropos_agent.agent import AtroposAgent
from atropos_agent.tokens.record import problems
from atropos_agent.types import IGNORED, AgentConfig, AgentError
from tools.base import ToolRegistry, ToolResult


async def say(text: str) -> str:
    """Say something back."""
    return text


async def finish(answer: str) -> ToolResult:
    """End the rollout."""
    return ToolResult(answer, done=True)


async def crash() -> str:
    """Crash."""
    raise OSError("disk on fire")


TOOLS = ToolRegistry([say, finish, crash])


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


class Model(PlaybackServer):
    """Samples texts in order, of which each token has a logprob of its own. A text that is an error is raised, a number
    is the seconds for which it hangs before the next text."""

    def __init__(self, template, texts):
        super().__init__([])
        self.template, self.texts = template, list(texts)

    async def tokens_and_logprobs_completion(self, **kwargs):
        text = self.texts.pop(0)
        if isinstance(text, float):
            await asyncio.sleep(text)
            text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        close = self.template.close_id
        close = self.template.tokenizer.eos_token_id if close is None else close
        self._left.append(Turn([*self.template.encode(text, continues=True), close]))
        answer = await super().tokens_and_logprobs_completion(**kwargs)
        answer[2][0][:] = [-(1000 * len(self.exchanges) + place) / 2**20 for place in range(len(answer[1][0]))]
        self.exchanges[-1].logprobs[:] = answer[2][0]
        return answer


async def play(template, texts, work, *, tools=TOOLS, **config):
    """A rollout of an agent that works in this way. Returns its result and what the server saw and sampled."""

    class Own(AtroposAgent):
        async def work(self, turns):
            await work(turns)

    server = Model(template, texts)
    agent = Own(server, tools, AgentConfig(**config), template=template)
    try:
        return await agent.run("Go."), server.exchanges
    except AgentError as error:
        error.exchanges = server.exchanges
        raise


def assert_every_token_is_accounted_for(result, exchanges):
    """Each sampled token is trained in exactly one row, after what the server was given, or counted by reason."""
    named = {logprob: (one, place) for one in exchanges for place, logprob in enumerate(one.logprobs)}
    trained = Counter()
    for row in result.segments:
        for place, (token, mask, logprob) in enumerate(zip(row.tokens, row.masked_tokens, row.logprobs, strict=True)):
            if mask != IGNORED:
                one, of = named[logprob]
                trained[logprob] += 1
                assert (token, place) == (one.ids[of], len(one.prompt) + of)
                assert of or list(row.tokens[:place]) == list(one.prompt)
    assert set(trained.values()) <= {1}
    untrained = sum(result.metadata.get("conversations", {}).get("untrained_tokens", {}).values())
    assert len(trained) + untrained == len(named)
    assert problems(result.segments, result.record) == [None] * len(result.segments)
    assert [step.index for step in result.steps] == list(range(len(exchanges)))
    for step, one in zip(result.steps, exchanges, strict=True):
        row = next((row for row in result.segments if row.segment == step.segment), None)
        if row is not None:
            assert list(row.tokens[step.start : step.start + step.completion_tokens]) == list(one.ids)


async def loop(turns):
    while turns.ended is None:
        reply = await turns.reply()
        await turns.execute(reply.calls)
