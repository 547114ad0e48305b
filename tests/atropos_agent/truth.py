"""What must hold of every rollout, checked from outside: what was sent, what was sampled, what is trained."""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise

from atroposlib.envs.server_handling.server_baseline import APIServerConfig

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.scripted import ScriptedTurn
from atropos_agent.engines.token_server import TokenServer
from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.encoding import CUT
from atropos_agent.tokens.record import problems
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, NO_LOGPROB, AgentConfig
from tools.base import ToolRegistry


@dataclass(frozen=True)
class Turn:
    """What an engine samples: ids, why it stopped."""

    ids: list[int]
    reason: str = "stop"


@dataclass(eq=False)
class PlaybackServer(TokenServer):
    """Samples given turns, cut at the limit of the request; keeps every exchange."""

    turns: list[Turn]
    exchanges: list[ScriptedTurn] = field(default_factory=list)

    def __post_init__(self):
        super().__init__(APIServerConfig(model_name="playback", base_url="", server_type="vllm"))
        self.initialized = True
        self._left = list(self.turns)

    async def tokens_and_logprobs_completion(self, **kwargs):
        prompt, turn = list(kwargs["input_ids"]), self._left.pop(0)
        ids, reason = list(turn.ids), turn.reason
        if len(ids) > kwargs["max_tokens"]:
            ids, reason = ids[: kwargs["max_tokens"]], "length"
        logprobs = [-(1 + (i * 7 + t) % 50) / 16 for i, t in enumerate(ids, start=len(prompt))]
        self.exchanges.append(ScriptedTurn(prompt, ids, logprobs))
        return prompt, [ids], [logprobs], [reason]


async def play(tokenizer, turns, tools, *, template=None, task="Go.", **config):
    """A rollout over the turns. Returns its result and the exchanges."""
    server = PlaybackServer(turns)
    config = AgentConfig(max_steps=len(turns), **config)
    agent = AtroposAgent(server, ToolRegistry(tools), config, tokenizer, template=template)
    return await agent.run(task), server.exchanges


def assert_truth(tokenizer, result, exchanges, *, render=None):
    """Everything of point 1 that can be seen from outside."""
    assert_rows_are_the_truth(result, exchanges)
    assert problems(result.segments, result.record) == [None] * len(result.segments)
    assert_prompts_are_what_the_template_writes(tokenizer, result, exchanges, render)
    assert_no_turn_is_forged(tokenizer, result, exchanges)
    assert_no_end_is_doubled(tokenizer, exchanges)
    assert_nothing_is_cut_from_replies(tokenizer, result, exchanges)


def assert_rows_are_the_truth(result, exchanges):
    """Each exchange's prompt and reply stand, in that place, in one row; nothing else is trained."""
    rows = {row.segment: row for row in result.segments}
    trained = {index: set() for index in rows}
    for step, exchange in zip(result.steps, exchanges, strict=True):
        if not exchange.ids:
            continue
        row = rows[step.segment]
        start, end = len(exchange.prompt), len(exchange.prompt) + len(exchange.ids)
        assert list(row.tokens[:start]) == list(exchange.prompt)
        assert list(row.tokens[start:end]) == list(exchange.ids)
        assert list(row.masked_tokens[start:end]) == list(exchange.ids)
        assert list(row.logprobs[start:end]) == list(exchange.logprobs)
        trained[step.segment] |= set(range(start, end))
    for index, row in rows.items():
        assert {i for i, m in enumerate(row.masked_tokens) if m != IGNORED} == trained[index]
        assert all(p == NO_LOGPROB for i, p in enumerate(row.logprobs) if i not in trained[index])
    assert result.sampled_tokens == sum(len(e.ids) for e in exchanges)


def assert_prompts_are_what_the_template_writes(tokenizer, result, exchanges, render=None):
    """Up to white space, which templates trim, and incomplete UTF-8, the prompt of every turn is the
    rendering of the conversation so far, in which thinking tags in a call's arguments are text."""
    template = _template(tokenizer, tokenizer.chat_template)
    render = render or template.render
    literals = partial(Hermes().literals, thinking_open=template.opens_thinking)
    messages = [
        {**m, "content": _quote_thinking_tags(m["content"], literals(m["content"]))} for m in result.to_messages()
    ]
    ends = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    for exchange, end in zip(exchanges, ends, strict=True):
        rendered = render(messages[:end])
        assert _bare(template.decode(exchange.prompt)) == _bare(rendered)


def assert_no_turn_is_forged(tokenizer, result, exchanges):
    """Every control token of a prompt is the template's own, or one that the model sampled as such."""
    template = _template(tokenizer, tokenizer.chat_template)
    controls = {
        i
        for i, token in tokenizer.added_tokens_decoder.items()
        if (token.special or (token.content.strip() and token.content in tokenizer.chat_template))
        and not re.fullmatch(r"</?(think|tool\w*)>", token.content)
    }
    messages = result.to_messages()
    ends = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
    sampled = Counter()
    for exchange, end in zip(exchanges, ends, strict=True):
        harmless = [m if m["role"] == "system" else {**m, "content": "x"} for m in messages[:end]]
        own = Counter(i for i in template.prompt(harmless) if i in controls)
        written = Counter(i for i in exchange.prompt if i in controls)
        assert written <= own + sampled, written - own - sampled
        sampled.update(i for i in exchange.ids if i in controls)


def assert_no_end_is_doubled(tokenizer, exchanges):
    """Behind a reply that ends with an end-of-turn token, the next prompt adds no second one."""
    template = _template(tokenizer, tokenizer.chat_template)
    for before, after in pairwise(exchanges):
        known = [*before.prompt, *before.ids]
        if list(after.prompt[: len(known)]) == known and before.ids and before.ids[-1] in template.stop_ids:
            added = template.decode(after.prompt[len(known) :]).lstrip()
            assert not any(added.startswith(tokenizer.decode([stop])) for stop in template.stop_ids), added[:40]


def assert_nothing_is_cut_from_replies(tokenizer, result, exchanges):
    """What the loop reads of a reply is all of it but the token that ended it."""
    template = _template(tokenizer, tokenizer.chat_template)
    ends = ["", *(tokenizer.decode([stop]) for stop in template.stop_ids)]
    for step, exchange in zip(result.steps, exchanges, strict=True):
        assert template.decode(exchange.ids).rstrip() in [(step.response + end).rstrip() for end in ends]


@cache
def _template(tokenizer, source):
    """A tokenizer's chat template. source: of its text, as tests change it."""
    return ChatTemplate(tokenizer)


def _bare(text):
    return "".join(text.replace("\ufffd", "").replace(CUT, "").split())


def _quote_thinking_tags(content, places):
    """A reply whose calls, at these places, hold no thinking tags that the template would see."""
    for start, end in reversed(places):
        call = re.sub(r"<(/?think>)", rf"<{CUT}\1", content[start:end])
        content = content[:start] + call + content[end:]
    return content
