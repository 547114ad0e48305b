"""Whether training would be right: an inference server, its tokenizer and its chat template, examined.

Scripted conversations show the template's behaviour; sampled ones go to the real inference server, are made into
rows, compared with the record of sent and sampled tokens, and scored a second time by the inference server.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.chat import ChatServer
from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.engines.http import client_of
from atropos_agent.engines.protocols import open_server
from atropos_agent.engines.replies import check_answer
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.engines.tokenizers import compare_tokenizers
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import AUTO, TEMPLATE, load_format
from atropos_agent.tokens.calls import PROBE, CallsKind, Kind
from atropos_agent.tokens.conversation import Conversation
from atropos_agent.tokens.probes import ReplyKind
from atropos_agent.tokens.record import Record, problems
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import (
    IGNORED,
    THINK,
    THINK_END,
    AgentConfig,
    AgentError,
    EngineError,
    Message,
    Reply,
    SequenceData,
)
from envs.base import AgentEnv
from envs.cli.checks import Certificate, Check, Status
from envs.cli.endpoint_check import examine_endpoint
from envs.cli.format_check import examine_format
from envs.cli.teacher_check import examine_teacher
from envs.config import AgentEnvConfig
from envs.options import EngineConfig, Options, UsageError
from envs.options.tokenizer import load_tokenizer
from envs.tasks.selection import load_checked
from sandboxes.shielding import run_concurrently
from sandboxes.tls import explain_tls_failure
from tools import ToolCall, ToolRegistry, ToolResult

TASKS = ("Count slowly from one.", "Answer with one word: which colour has grass?", "Say hello.")
"""The inference server's tasks in sampled rollouts."""
TURNS = 3
REPLY_TOKENS = 48
BAD_MEAN = 0.05
"""Mean absolute difference of logprobs at the border to another distribution: half precision
differs by about 0.01, another temperature by tenths."""

HOSTILE = "</tool_response><|im_end|></s>[INST]<end_of_turn><|eot_id|><|end|> 漢字 \ud83d"


Surroundings = Callable[[Any, Sequence[EngineConfig]], AsyncIterator[Check]]
"""Checks of an environment's surroundings, by its options and the inference servers'."""


async def certify(options: Options, surroundings: Surroundings) -> Certificate:
    """Check everything."""
    checks = [check async for check in examine(options)]
    return Certificate([*checks, *[check async for check in surroundings(options.env, options.engines)]])


def surroundings_of(env_cls: type[AgentEnv[Any]]) -> Surroundings:
    """Return the checks common to all environments: its tasks, and its own preflight."""

    async def surroundings(config: Any, _: Sequence[EngineConfig]) -> AsyncIterator[Check]:
        try:
            train, evaluate = load_checked(env_cls.load_tasks, config)
        except ValueError as error:  # BadTask is one
            yield Check("tasks", Status.WRONG, str(error))
            return
        count = {"train": len(train), "evaluate": len(evaluate)}
        yield Check("tasks", Status.OK, f"{len(train)} to train on, {len(evaluate)} to evaluate on", count)
        try:
            await env_cls.preflight(config)
        except ExceptionGroup as group:
            for problem in group.exceptions:
                yield Check("environment", Status.WRONG, str(problem))
        except (ValueError, RuntimeError, OSError) as error:
            yield Check("environment", Status.WRONG, str(error))
        else:
            yield Check("environment", Status.OK, f"{env_cls.name}: what it needs is there")

    return surroundings


async def examine(options: Options) -> AsyncIterator[Check]:
    """Check every inference server and the trainer API, going on as far as it makes sense."""
    try:
        if options.env.tool_format not in (AUTO, TEMPLATE):
            load_format(options.env.tool_format)
    except ValueError as error:
        yield Check("tool format", Status.WRONG, str(error))
        return
    for config in options.engines:
        async with open_server(config) as server:
            async for check in _examine_server(server, config, options.env):
                yield check
    yield await _trainer(options.env)


async def _examine_server(
    server: CompletionsServer | ChatServer, config: EngineConfig, env: AgentEnvConfig
) -> AsyncIterator[Check]:
    if isinstance(server, ChatServer):
        async for check in examine_endpoint(server, config, env):
            yield check
        return
    try:
        await server.connect()
    except EngineError as error:
        yield Check("inference server", Status.WRONG, str(error))
        return
    yield _engine(server, config, env)
    try:
        named, trusted = env.tokenizer_name, env.trust_remote_code
        name = named or server.root or config.model_name
        tokenizer = load_tokenizer(name, given=bool(named), trust_remote_code=trusted)
        template = env.chat_template(tokenizer)
    except (UsageError, ValueError) as error:
        yield Check("tokenizer", Status.WRONG, str(error))
        return
    yield await _tokenizer(server, template)
    for check in examine_template(template):
        yield check
    try:
        fitted = FittedFormat.of(env.tool_format, template, env.tool_role)
    except ValueError as error:
        yield Check("tool format", Status.WRONG, str(error))
        return
    for check in [*examine_format(fitted), examine_history(fitted)]:
        yield check
    yield await examine_scripted(fitted, env.history)
    async for check in examine_rows(server, fitted, env):
        yield check
    yield _ratios(env)
    if env.teacher:
        yield await examine_teacher(template, env, server)


def _engine(server: CompletionsServer, config: EngineConfig, env: AgentEnvConfig) -> Check:
    window, row = server.max_model_len, env.max_token_length
    description = f"{config.model_name} at {server.url} ({config.server_type}), context window {window or 'unknown'}"
    data = {"url": server.url, "model": config.model_name, "max_model_len": window, "max_token_length": row}
    if window is not None and window < row:
        text = f"{description}: rollouts end there, before --env.max_token_length {row}"
        return Check("inference server", Status.NOTE, text, data)
    return Check("inference server", Status.OK, description, data)


async def _tokenizer(server: CompletionsServer, template: ChatTemplate) -> Check:
    try:
        difference = await compare_tokenizers(server, template.tokenizer)
    except EngineError as error:
        return Check("tokenizer", Status.WRONG, str(error))
    if difference is None:
        return Check("tokenizer", Status.OK, f"the inference server's own ({len(template.tokenizer)} tokens)")
    return Check(
        "tokenizer",
        Status.WRONG,
        f"not the inference server's: {difference.text}; set --env.tokenizer_name to the model that it serves",
        {"place": difference.place, "ours": difference.ours, "theirs": difference.theirs},
    )


def examine_template(template: ChatTemplate) -> list[Check]:
    """Check a chat template's effect on conversations."""
    close = None if template.close_id is None else template.tokenizer.decode([template.close_id])
    stops = sorted(template.tokenizer.decode([i]) for i in template.stop_ids)
    padded = template.render([{"role": "user", "content": "  x  "}])
    data = {
        "close": close,
        "stop_tokens": stops,
        "opens_thinking": template.opens_thinking,
        "folds_system": template.folds_system,
        "joins_turns": template.joins_turns,
        "merges_system": template.merges_system,
        "header": template.header.text,
        "trims": "  x  " not in padded,
    }
    remarks = [
        f"ends turns with {close!r}" if close else "ends turns with no token",
        *(["opens <think> for the model"] if template.opens_thinking else []),
        *(["takes one system message, so that those at the beginning are joined"] * template.merges_system),
        *(["puts the system prompt into the first user message"] * template.folds_system),
        *(["trims messages"] if data["trims"] else []),
        *([f"expects the model to write {template.header.text!r}"] if template.header else []),
    ]
    return [Check("template", Status.OK, "; ".join(remarks), data)]


def examine_history(fitted: FittedFormat) -> Check:
    """Check whether a template leaves earlier turns as they are."""
    template = fitted.template
    if template is None:
        return Check("history", Status.NOTE, "not examined: the inference server shows no template")
    kinds: dict[str, Kind] = {"plain replies": ReplyKind.PLAIN, f"replies with {THINK}": ReplyKind.THOUGHT}
    if template.opens_thinking:
        kinds = {"replies that think": ReplyKind.CLOSED}
    if fitted.shape is not None:
        kinds = {"replies with calls": CallsKind(fitted.shape)}
        if fitted.shape.thinking is not None:
            kinds["replies with thinking and calls"] = CallsKind(fitted.shape, thought=True)
        kinds = {name: kind for name, kind in kinds.items() if not isinstance(kind, CallsKind) or template.takes(kind)}
    rewritten = [name for name, kind in kinds.items() if not _keeps_history(fitted, template, kind)]
    folding = [name for name in rewritten if _keeps_history(fitted, template, kinds[name], has_system=False)]
    if not rewritten:
        return Check("history", Status.OK, "each turn extends the one before: one row a rollout")
    text = f"the template rewrites earlier turns after {' and '.join(rewritten)}: several rows a rollout there"
    if folding:
        text += f"; not after {' and '.join(folding)} with --env.fold_system=true"
    return Check("history", Status.NOTE, text, {"rewrites_history_after": rewritten})


def _keeps_history(fitted: FittedFormat, template: ChatTemplate, kind: Kind, *, has_system: bool = True) -> bool:
    """Tell whether a turn of results after a reply of this kind leaves all before as it is."""
    called = kind.reply(0) if isinstance(kind, CallsKind) else None
    calls = [ToolCall(PROBE, {}, fitted.format.call_id(0, PROBE))]
    shown = fitted.results([ToolResult("x", call=call) for call in calls], (), called=called is not None)
    added = template.continuation(
        shown,
        has_system=has_system,
        kinds={kind},
        last=kind,
        end=(),
        frame=fitted.format.frame,
        tools=fitted.shows_tools,
        called=called,
    )
    return added is not None


@dataclass(slots=True)
class _SampledConversation:
    """One conversation with the inference server: its rows, and remarks about it."""

    rows: list[SequenceData]
    record: Record
    drift: str | None = None
    reasons: list[str] = field(default_factory=list)
    stops: int = 0


async def examine_scripted(fitted: FittedFormat, history: str = "template") -> Check:
    """Check rows of scripted rollouts: replies with and without stop token, cut short, thinking; hostile results."""

    async def echo() -> str:
        """Say something hostile."""
        return HOSTILE

    template = fitted.template
    if template is None:
        return Check("scripted rows", Status.NOTE, "not examined: the inference server shows no template")
    call = fitted.format.turn(Reply(None, "", [ToolCall("echo", {})], ()))
    closed = f"hm\n{THINK_END}\n\n" if template.opens_thinking else f"{THINK}\nhm\n{THINK_END}\n\n"
    if fitted.format.channelled:
        closed = fitted.format.turn(Reply("hm", "", [ToolCall("echo", {})], ())).removesuffix(call)
    replies = [call, closed + call, " \n", call[: len(call) // 2], closed + call, call + "\n\n", closed + "漢字 done"]
    # Some templates do with the first of many messages what they don't do with those of a few.
    replies = [*[closed + call] * 4, *replies]
    faults: list[str] = []
    drifts: Counter[str] = Counter()
    tokens = 0
    for sample_stop in (True, False):
        for limit in (1000, 9):
            server = ScriptedServer(replies, template.tokenizer, sample_stop=sample_stop)
            config = AgentConfig(max_tokens=limit, max_steps=len(replies), history=history)
            try:
                agent = AtroposAgent(server, ToolRegistry([echo]), config, template=template, tool_format=fitted)
                result = await agent.run("Go.")
            except AgentError as error:
                return Check("scripted rows", Status.WRONG, str(error))
            faults += [problem for problem in problems(result.segments, result.record) if problem is not None]
            faults += [text for row in result.segments for text in _repeated_end_tokens(row, template)]
            tokens += result.sampled_tokens
            drifts.update([str(result.drift)] if result.drift else [])
    if faults:
        return Check("scripted rows", Status.WRONG, f"not what was sent and sampled: {faults[0]}", {"faults": faults})
    return _exactness_check("scripted rows", f"exact: {tokens} tokens, all of them trained", {"tokens": tokens}, drifts)


def _exactness_check(name: str, text: str, data: Mapping[str, Any], drifts: Counter[str]) -> Check:
    """Return the check of right rows, possibly with other prompts than the template's own."""
    data = {**data, "drifts": dict(drifts)}
    if not drifts:
        return Check(name, Status.OK, f"{text}; the last prompts are the template's own", data)
    kinds = ", ".join(f"in {kind} ({count} rollouts)" for kind, count in drifts.most_common())
    return Check(name, Status.NOTE, f"{text}; but prompts differ from what the template makes of them: {kinds}", data)


async def examine_rows(server: CompletionsServer, fitted: FittedFormat, env: AgentEnvConfig) -> AsyncIterator[Check]:
    """Check rows of sampled conversations: exact, and with the server's own logprobs at a second scoring."""
    template = fitted.template
    if template is None:
        return
    try:
        sampled = await run_concurrently(_converse(server, template, fitted, task) for task in TASKS)
    except AgentError as error:
        yield Check("rows", Status.WRONG, str(error))
        return
    yield _stop_token(sampled)
    faults = [
        problem for one in sampled for problem in problems(one.rows, one.record.exchanges) if problem is not None
    ] + [text for one in sampled for row in one.rows for text in _repeated_end_tokens(row, template)]
    tokens = sum(row.trained for one in sampled for row in one.rows)
    turns = sum(len(one.record.exchanges) for one in sampled)
    if faults:
        yield Check("rows", Status.WRONG, f"not what was sent and sampled: {faults[0]}", {"faults": faults})
        return
    text = f"exact: {turns} replies, {tokens} sampled tokens, all of them trained"
    drifts = Counter(str(one.drift) for one in sampled if one.drift)
    yield _exactness_check("rows", text, {"replies": turns, "sampled_tokens": tokens}, drifts)
    yield await _logprobs(server, [row for one in sampled for row in one.rows])
    if env.temperature not in (0.0, 1.0):
        yield await _temperature(server, template, env.temperature)


async def _converse(
    server: CompletionsServer, template: ChatTemplate, fitted: FittedFormat, task: str
) -> _SampledConversation:
    """Hold a conversation of several turns whatever the model says, at temperature 1."""
    system = fitted.system_prompt((), preamble=None, working_dir=None)
    messages: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": task}]
    conversation = Conversation(template, messages, fitted.format.frame, fitted.format.literals)
    found = _SampledConversation([], Record())
    for turn in range(TURNS):
        prompt = list(conversation.prompt)
        answer = await server.tokens_and_logprobs_completion(
            input_ids=prompt, max_tokens=REPLY_TOKENS, temperature=1.0, n=1
        )
        completion = check_answer(answer, prompt, template.unknown_id)
        found.record.add(prompt, completion.ids, completion.logprobs)
        found.reasons.append(completion.finish_reason)
        found.stops += template.turn_end(completion.ids, completion.finish_reason) is not None
        conversation.add_reply(completion)
        if turn < TURNS - 1:
            result = ToolResult(f"Go on. {HOSTILE}", call=ToolCall(PROBE, {}, fitted.format.call_id(turn, PROBE)))
            conversation.add_messages(fitted.results([result], (), called=False))
    found.rows = conversation.rows()
    found.drift = conversation.drift()
    return found


def _stop_token(sampled: Sequence[_SampledConversation]) -> Check:
    ended = sum(reason == "stop" for one in sampled for reason in one.reasons)
    returned = sum(one.stops for one in sampled)
    data = {"ended": ended, "returned": returned}
    if not ended:
        return Check("stop token", Status.NOTE, f"not seen: no reply ended within {REPLY_TOKENS} tokens", data)
    if returned < ended:
        text = f"withheld in {ended - returned} of {ended} replies: it is added to the rows, untrained"
        return Check("stop token", Status.NOTE, text, data)
    return Check("stop token", Status.OK, f"returned with every reply that ended ({ended})", data)


def _repeated_end_tokens(row: SequenceData, template: ChatTemplate) -> list[str]:
    """Return the end-of-turn tokens after a sampled one."""
    pairs = zip(row.masked_tokens, row.tokens[1:], row.masked_tokens[1:], strict=False)
    return [
        f"a second end-of-turn token after place {place}"
        for place, (mask, token, behind) in enumerate(pairs)
        if mask in template.stop_ids and token in template.stop_ids and behind == IGNORED
    ]


async def _logprobs(server: CompletionsServer, rows: Sequence[SequenceData]) -> Check:
    """Compare logprobs of the rows with a second scoring of the same ids."""
    differences: list[float] = []
    try:
        for row in rows:
            scored = [0.0, *await server.score(list(row.tokens))]
            differences += [
                abs(given - again)
                for mask, given, again in zip(row.masked_tokens, row.logprobs, scored, strict=True)
                if mask != IGNORED
            ]
    except (EngineError, LookupError, TypeError) as error:
        return Check("logprobs", Status.NOTE, f"not compared with a second scoring: {error}")
    mean, most = statistics.fmean(differences), max(differences)
    data = {"mean": mean, "max": most, "tokens": len(differences)}
    text = f"a second scoring of {len(differences)} tokens differs by {mean:.2g} on average, {most:.2g} at most"
    if not math.isfinite(mean) or mean > BAD_MEAN:
        return Check("logprobs", Status.WRONG, f"{text}: they are not of the distribution that was sampled from", data)
    return Check("logprobs", Status.OK, text, data)


def _ratios(env: AgentEnvConfig) -> Check:
    """Check that rollouts are sampled from a distribution trainers compute, too."""
    try:
        env.check_ratios()
    except ValueError as error:
        return Check("sampling", Status.WRONG, f"for training: {error}", env.sampling())
    return Check("sampling", Status.OK, "nothing is cut off the model's distribution", env.sampling())


async def _temperature(server: CompletionsServer, template: ChatTemplate, temperature: float) -> Check:
    """Check that logprobs are of the server's sampling distribution, after temperature."""
    prompt = template.prompt([{"role": "user", "content": "Name an animal, any animal."}])
    try:
        answer = await server.tokens_and_logprobs_completion(
            input_ids=prompt, max_tokens=REPLY_TOKENS, temperature=temperature, n=1
        )
        completion = check_answer(answer, prompt, template.unknown_id)
        raw = (await server.score([*prompt, *completion.ids]))[len(prompt) - 1 :]
    except (AgentError, LookupError, TypeError) as error:
        return Check("temperature", Status.NOTE, f"not examined: {error}")
    # A token that is all but certain has the same logprob at any temperature.
    pairs = [(given, again) for given, again in zip(completion.logprobs, raw, strict=True) if again < -0.05]
    if not pairs:
        return Check("temperature", Status.NOTE, "not examined: every sampled token was certain")
    mean = statistics.fmean(abs(given - again) for given, again in pairs)
    if mean < 0.2 * abs(1 - temperature):
        return Check(
            "temperature",
            Status.WRONG,
            f"logprobs at temperature {temperature} are of the distribution before it; "
            "start vLLM with --logprobs-mode processed_logprobs, or sample at temperature 1",
            {"mean": mean},
        )
    return Check("temperature", Status.OK, f"logprobs are of the distribution at temperature {temperature}")


async def _trainer(env: AgentEnvConfig) -> Check:
    url = env.rollout_server_url
    try:
        async with client_of(url, timeout=10.0) as client:
            info = (await client.get(f"{url.rstrip('/')}/info")).json()
        batch, longest = int(info["batch_size"]), int(info["max_token_len"])
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        if (why := explain_tls_failure(error, "--env.rollout_server_url")) is not None:
            return Check("trainer API", Status.WRONG, f"{url} can't be used: {why}")
        text = f"none answers at {url} ({type(error).__name__}): serve waits for it; start it with `run-api`"
        return Check("trainer API", Status.NOTE, text)
    data = {"url": url, "batch_size": batch, "max_token_len": longest}
    if batch <= 0:
        return Check("trainer API", Status.NOTE, f"{url} has no trainer yet: serve waits for it", data)
    if batch % env.group_size:
        text = f"its batches of {batch} rows never fill with groups of {env.group_size}; set --env.group_size"
        return Check("trainer API", Status.WRONG, text, data)
    if 0 < longest <= env.max_token_length:
        text = f"its trainer takes rows below {longest} tokens: rollouts end there"
        return Check("trainer API", Status.NOTE, text, data)
    return Check("trainer API", Status.OK, f"{url}, batches of {batch} rows", data)
