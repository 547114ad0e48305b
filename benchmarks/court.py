"""What each framework's own joining makes of the same conversations: one row of many requests, or many, or less.

    python benchmarks/court.py FOLDER --tokenizers FOLDER_OF_TOKENIZERS

Agents tell their history again at every turn, and not always as they were answered. Each case is a conversation of an
agent that does one such thing, over the Chat protocol; its requests, and the ids that were sampled for them, are
recorded once with each tokenizer's chat template and joined by the code of each framework's wheel, in an environment
of its own under FOLDER. What is compared is in the table's heads:

- trained: sampled tokens that some row trains, of those that were sampled; in brackets those that are trained twice.
- of: so many conversations. rows and tokens: what a trainer computes.
- never given: trained tokens whose row says something else before them than the inference server was given.

TRL, OpenEnv and tinker-cookbook are given the prompts of a server that renders each request by the chat template;
verifiers and ours make their own prompts, for replies of the same ids. NeMo Gym asks the server to begin a prompt with
ids that it knows, which is done here; the last request is named as the one that is scored. Its wheel asks for a newer
Python than this one, and its capture of tokens runs on this one.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import importlib
import json
import os
import re
import subprocess
import sys
import tarfile
import types
import venv
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

TEMPLATES = ("qwen3", "qwen2_5", "llama3_1", "gptoss")
CASES = {
    "as sampled": "Codex, mini-swe-agent, openai-agents",
    "JSON rewritten": "OpenCode, qwen-code, pi, OpenHands, LangGraph",
    "trailing blank": "smolagents",
    "thinking cut": "OpenHands, LangGraph, openai-agents",
    "a retry": "qwen-code, Claude Code",
    "a sub-agent": "Claude Code, OpenCode",
    "a compaction": "Codex, qwen-code, OpenCode",
}
"""What an agent does, and which agents were seen to do it."""
WHEELS: Mapping[str, Sequence[Sequence[str]]] = {
    "TRL": [["trl==1.16.0"]],
    "OpenEnv": [["--no-deps", "openenv==0.10.0"]],
    "verifiers": [["verifiers==0.4.0"]],
    "tinker-cookbook": [
        ["tinker==0.38.0", "pillow", "chz", "termcolor", "blobfile", "tiktoken"],
        ["--no-deps", "tinker-cookbook==0.6.1"],
    ],
    "NeMo Gym": [["--no-deps", "--ignore-requires-python", "nemo-gym==0.7.0"], ["orjson"]],
}
PACKAGES = {
    "TRL": "trl",
    "OpenEnv": "openenv",
    "verifiers": "verifiers",
    "tinker-cookbook": "tinker-cookbook",
    "NeMo Gym": "nemo-gym",
}
LEFT_OUT = {("verifiers", "gptoss")}
"""Its renderer loads a vocabulary from the network."""
OURS = "ours"
THINKS = ("qwen3", "gptoss")
"""Templates of models that think; the others' replies have no thinking."""
BARE = ("llama3_1", "gptoss")
"""Templates that take no words beside calls, or none beside thinking and calls."""
TOOL = {
    "name": "shell",
    "description": "Run a command.",
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}
TOOLS = [{"type": "function", "function": TOOL}]
WORDS = "the file that was named in the task is not where it was said to be, so it may have been moved "

Message = dict[str, Any]
Ask = Callable[[Sequence[Message], bool], Awaitable[Message]]
"""Answers messages, shown tools or not, with an assistant's message."""
Row = tuple[list[int], list[int]]
"""Ids, and 1 for each that is trained."""
Request = tuple[list[int], list[int]]
"""A prompt's ids, and those that were sampled for it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokenizers", type=Path, help="folder of NAME.tar.xz or NAME")
    parser.add_argument("--join", choices=WHEELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.join:
        join(options.join, options.folder)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    unpack(options.tokenizers, options.folder / "tokenizers")
    conversations = asyncio.run(recorded(options.folder / "tokenizers"))
    (options.folder / "conversations.json").write_text(json.dumps(conversations))
    for name in WHEELS:
        python = environment(options.folder / "venvs" / PACKAGES[name], WHEELS[name])
        command = [python, __file__, str(options.folder), "--join", name]
        subprocess.run(command, check=True, env={**os.environ, "HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"})
    show(options.folder, conversations)


def unpack(given: Path, folder: Path) -> None:
    """Unpack the tokenizers that are used."""
    for name in TEMPLATES:
        if (given / name).is_dir() and not (folder / name).exists():
            folder.mkdir(exist_ok=True)
            (folder / name).symlink_to((given / name).resolve())
        elif not (folder / name).exists():
            with tarfile.open(given / f"{name}.tar.xz") as archive:
                archive.extractall(folder, filter="data")


def environment(folder: Path, wheels: Sequence[Sequence[str]]) -> str:
    """Make an environment with a framework's wheel, beside what is installed here. Returns its interpreter."""
    python = folder / "bin/python"
    if not (folder / "made").exists():
        venv.create(folder, with_pip=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "here.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        for wheel in wheels:
            subprocess.run([python, "-m", "pip", "install", "--quiet", *wheel], check=True)
        (folder / "made").touch()
    return str(python)


# Agents


async def work(case: str, ask: Ask) -> None:
    """Be an agent: call tools as long as the replies do, and tell the history as the case says."""
    messages: list[Message] = [
        {"role": "system", "content": "You repair programs."},
        {"role": "user", "content": "The tests fail. Find out why."},
    ]
    for turn in range(10):
        said = await ask(messages, True)
        if case == "a retry" and turn == 1:
            said = await ask(messages, True)
        messages.append(told_again(case, said))
        if not said.get("tool_calls"):
            return
        found = await helped(ask) if case == "a sub-agent" and turn == 1 else f"{turn}: {WORDS}"
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": found} for call in said["tool_calls"]]
        if case == "a compaction" and turn == 2:
            summary = await ask([*messages, {"role": "user", "content": "Sum up what was done."}], False)
            messages = [*messages[:2], {"role": "user", "content": f"So far: {summary['content']}"}]


async def helped(ask: Ask) -> str:
    """Be a sub-agent of two turns. Returns what it found."""
    messages: list[Message] = [
        {"role": "system", "content": "You look for files."},
        {"role": "user", "content": "Where is it?"},
    ]
    said = await ask(messages, True)
    messages.append(said)
    messages += [{"role": "tool", "tool_call_id": call["id"], "content": WORDS} for call in said["tool_calls"]]
    return str((await ask(messages, True))["content"])


def told_again(case: str, said: Message) -> Message:
    """Return a reply as the agent tells it again."""
    told = copy.deepcopy({name: value for name, value in said.items() if value is not None})
    if case == "JSON rewritten":
        for call in told.get("tool_calls", ()):
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]))
    if case == "trailing blank" and "content" in told:
        told["content"] = told["content"].strip()
    if case == "thinking cut":
        told.pop("reasoning_content", None)
    return told


# What is sampled, and recorded


def script(case: str, name: str, fitted: Any) -> Iterator[str]:
    """Yield the replies of a case, in the order in which they are asked for."""
    from atropos_agent.types import Reply
    from tools.base import ToolCall

    order = {"a retry": "cccccf", "a sub-agent": "cccfccf", "a compaction": "cccscf"}.get(case, "ccccf")
    for number, kind in enumerate(order):
        thinking = f"Step {number}. {WORDS * 2}".strip() if name in THINKS else None
        words = {"c": f"Let me look, {number}.", "f": "It was moved.", "s": "Three commands were run."}[kind]
        if kind == "c" and name in BARE:
            words = ""
        command = {"command": f"find . -name 'a{number}' | head -{number}"}
        calls = [ToolCall("shell", command, f"call_{number}")] if kind == "c" else []
        text = str(fitted.format.turn(Reply(thinking, words, calls, ())))
        if case == "JSON rewritten":
            text = re.sub(r'("command"):\s*', r"\1 :  ", text)
        if case == "trailing blank" and words:
            text = text.replace(words, f"{words} \n")
        ends = fitted.format.ends if calls else ()
        yield text + (ends[0] if ends else fitted.template.decode([fitted.template.close_id]))


async def recorded(folder: Path) -> list[dict[str, Any]]:
    """Return the conversations of all cases and templates: requests, and what was sampled for them."""
    from transformers import AutoTokenizer

    from atropos_agent.fitted import FittedFormat
    from atropos_agent.tokens.template import ChatTemplate

    found = []
    for name in TEMPLATES:
        tokenizer = AutoTokenizer.from_pretrained(folder / name)
        fitted = FittedFormat.of("auto", ChatTemplate(tokenizer), "auto")
        for case in CASES:
            found.append({"template": name, "case": case, **await _recorded(case, name, tokenizer, fitted)})
    return found


async def _recorded(case: str, name: str, tokenizer: Any, fitted: Any) -> dict[str, Any]:
    """Hold one conversation by way of our gateway, and record what the agent asked and what was sampled."""
    import httpx

    from atropos_agent.engines.scripted import ScriptedServer
    from atropos_agent.gateway import Session
    from atropos_agent.types import IGNORED

    server = ScriptedServer(script(case, name, fitted), tokenizer, sample_stop=False)  # it stands in the script
    asked: list[dict[str, Any]] = []
    async with Session(server, fitted.template, fitted) as session:
        transport = httpx.ASGITransport(app=session.handle)
        async with httpx.AsyncClient(transport=transport, base_url="http://ours", timeout=60) as client:

            async def ask(messages: Sequence[Message], tools: bool) -> Message:
                body = {"model": "m", "messages": copy.deepcopy(list(messages)), "tools": TOOLS if tools else None}
                answer = await client.post("/v1/chat/completions", json={k: v for k, v in body.items() if v})
                if answer.is_error:
                    raise RuntimeError(answer.text)
                said = dict(answer.json()["choices"][0]["message"])
                asked.append({"messages": body["messages"], "tools": body["tools"], "said": copy.deepcopy(said)})
                return said

            await work(case, ask)
        result = await session.result()
    for request, turn in zip(asked, server.turns, strict=True):
        request |= {"reply": list(turn.ids), "logprobs": list(turn.logprobs)}
        request["prompt"] = rendered(tokenizer, request["messages"], request["tools"], name)
    rows = [(list(row.tokens), [int(mask != IGNORED) for mask in row.masked_tokens]) for row in result.segments]
    given = [(list(turn.prompt), list(turn.ids)) for turn in server.turns]
    return {"requests": asked, "ours": {"rows": rows, "given": given}}


def rendered(
    tokenizer: Any, messages: Sequence[Message], tools: Any, name: str, *, add_generation_prompt: bool = True
) -> list[int]:
    """Return the prompt that a server makes of a request by its chat template: arguments parsed, as vLLM does."""
    told = copy.deepcopy(list(messages))
    for message in told:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        if name == "gptoss" and "reasoning_content" in message:
            message["thinking"] = message.pop("reasoning_content")
        if message.get("tool_calls") and message.get("thinking"):
            message.pop("content", None)  # the template takes one of the two
        message.setdefault("content", "")
    ids = tokenizer.apply_chat_template(told, tools=tools, add_generation_prompt=add_generation_prompt, tokenize=True)
    return list(ids if isinstance(ids, list) else ids["input_ids"])


# Each framework's own joining


def join(name: str, folder: Path) -> None:
    """Join all conversations as a framework does, and write its rows."""
    conversations = json.loads((folder / "conversations.json").read_text())
    tokenizers, found = folder / "tokenizers", []
    for one in conversations:
        found.append(None if (name, one["template"]) in LEFT_OUT else JOINS[name](one, tokenizers))
    (folder / f"{PACKAGES[name]}.json").write_text(json.dumps({"version": version(PACKAGES[name]), "joined": found}))


def _served(conversation: Mapping[str, Any]) -> list[Request]:
    return [(request["prompt"], request["reply"]) for request in conversation["requests"]]


def with_trl(conversation: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """Join by `AsyncGRPOTrainer`'s worker, at its own `fork_threshold_tokens`."""
    from trl.experimental.async_grpo.async_grpo_config import AsyncGRPOConfig
    from trl.experimental.async_grpo.async_rollout_worker import TurnRecord, _chain_to_sequences

    threshold = AsyncGRPOConfig.__dataclass_fields__["fork_threshold_tokens"].default
    turns = [TurnRecord(one["prompt"], one["reply"], one["logprobs"]) for one in conversation["requests"]]
    sequences, _tally = _chain_to_sequences(turns, "rollout", threshold)
    rows = [(one.input_ids, one.completion_mask) for one in sequences]
    return {"rows": rows, "given": _served(conversation)}


def with_openenv(conversation: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """Join by the capture's graph and export: the rows that it calls trainable."""
    for package in ("openenv", "openenv.core", "openenv.core.harness", "openenv.core.harness.capture"):
        _without_init(package)  # which imports servers and user interfaces
    graph_module = importlib.import_module("openenv.core.harness.capture.graph")
    export = importlib.import_module("openenv.core.harness.capture.export").export_session
    graph = graph_module.RolloutGraph()
    for number, one in enumerate(conversation["requests"]):
        node = graph_module.TurnNode(
            f"n{number}",
            one["prompt"],
            one["reply"],
            one["logprobs"],
            index=number,
            finish_reason="stop",
            n_tools=len(one["tools"] or ()),
            request_messages=one["messages"],
            request_tools=one["tools"],
        )
        graph.add_turn(node)
    session = types.SimpleNamespace(graph=graph, session_id="s", metadata={}, findings=[], purpose="train")
    rows = [(row["input_ids"], row["loss_mask"]) for row in export(session)["sequences"] if row["trainable"]]
    return {"rows": rows, "given": _served(conversation)}


def _without_init(package: str) -> None:
    """Import a package without what its `__init__` imports."""
    if package not in sys.modules:
        parent, _, last = package.rpartition(".")
        paths = sys.modules[parent].__path__ if parent else sys.path
        module = types.ModuleType(package)
        module.__path__ = [str(Path(path) / last) for path in paths if (Path(path) / last).is_dir()]
        sys.modules[package] = module


def with_tinker(conversation: Mapping[str, Any], _: Path) -> dict[str, Any]:
    """Join by tinker-cookbook's `trajectory_to_data`."""
    import tinker
    from tinker_cookbook.completers import TokensWithLogprobs
    from tinker_cookbook.rl.data_processing import trajectory_to_data
    from tinker_cookbook.rl.types import Trajectory, Transition

    transitions = [
        Transition(
            tinker.ModelInput.from_ints(one["prompt"]), TokensWithLogprobs(one["reply"], one["logprobs"]), 0.0, False
        )
        for one in conversation["requests"]
    ]
    data = trajectory_to_data(Trajectory(transitions=transitions, final_ob=tinker.ModelInput.empty()), 1.0)
    rows = []
    for datum in data:
        targets = [int(token) for token in datum.loss_fn_inputs["target_tokens"].data]
        mask = [int(value) for value in datum.loss_fn_inputs["mask"].data]
        rows.append(([*datum.model_input.to_ints()[:1], *targets], [0, *mask]))
    return {"rows": rows, "given": _served(conversation)}


def with_nemo_gym(conversation: Mapping[str, Any], tokenizers: Path) -> dict[str, Any]:
    """Join by the lineage of its token capture and its builder, which delivers one chain of calls."""
    from transformers import AutoTokenizer

    for package in ("nemo_gym", "nemo_gym.token_id_capture"):
        _without_init(package)  # which imports servers
    lineage, records, builder = (
        importlib.import_module(f"nemo_gym.token_id_capture.{name}") for name in ("lineage", "records", "builder")
    )
    name = conversation["template"]
    tokenizer = AutoTokenizer.from_pretrained(tokenizers / name)
    known, entries = lineage.RolloutLineage(), []
    for number, one in enumerate(conversation["requests"]):
        found = known.resolve(one["messages"])
        parent, prompt = None, one["prompt"]
        if found.match is not None:
            parent = found.match.model_call_id
            prompt = _begun_with(list(found.match.cumulative_token_ids), one, tokenizer, name)
        entry = records.TokenEntry(
            rollout_id="rollout",
            model_call_id=f"call-{number:02}",
            prompt_token_ids=prompt,
            generation_token_ids=one["reply"],
            generation_log_probs=one["logprobs"],
            output_items=[one["said"]],
            created_at=number,
        )
        lineage.stamp_continuation(entry, one["messages"])
        records.stamp_lineage(entry, parent, parent_resolution=found.status)
        known.add_entry(entry)
        entries.append(entry)
    built = builder.run_builder(entries, terminal_call_id=entries[-1].model_call_id)
    rows: list[Row] = []
    if built.notes.terminal_chain == "delivered":
        chain = built.chains[0]
        tokens = list(chain.root_prompt)
        mask = [0] * len(tokens)
        for link in chain.links:
            tokens += link.interstitial + link.entry.generation_token_ids
            mask += [0] * len(link.interstitial) + [1] * len(link.entry.generation_token_ids)
        rows.append((tokens, mask))
    return {"rows": rows, "given": [(one.prompt_token_ids, one.generation_token_ids) for one in entries]}


def _begun_with(known: list[int], request: Mapping[str, Any], tokenizer: Any, name: str) -> list[int]:
    """Return the prompt of a server that puts known ids in the place of its rendering up to the last reply."""
    messages = request["messages"]
    last = max(place for place, message in enumerate(messages) if message["role"] == "assistant")
    until = rendered(tokenizer, messages[: last + 1], request["tools"], name, add_generation_prompt=False)
    # The last reply's end is the same one of all ends in both: a template may write a reply that is the last otherwise.
    ends = [place for place, token in enumerate(request["prompt"]) if token == known[-1]]
    behind: list[int] = request["prompt"][ends[until.count(known[-1]) - 1] :]
    return known[:-1] + behind


def with_verifiers(conversation: Mapping[str, Any], tokenizers: Path) -> dict[str, Any]:
    """Let the agent ask verifiers' `TrainClient` again, for which the same ids are sampled: a branch is a row."""
    return asyncio.run(_with_verifiers(conversation, tokenizers))


async def _with_verifiers(conversation: Mapping[str, Any], tokenizers: Path) -> dict[str, Any]:
    import renderers
    from aiohttp import web
    from transformers import AutoTokenizer
    from verifiers.v1 import graph
    from verifiers.v1.clients.train import TrainClient
    from verifiers.v1.configs.agent import AgentConfig
    from verifiers.v1.configs.client import TrainClientConfig
    from verifiers.v1.dialects.chat import ChatDialect
    from verifiers.v1.task import TaskData
    from verifiers.v1.trace import AgentInfo, Trace, TraceTask
    from verifiers.v1.types import SamplingConfig

    name = conversation["template"]
    config = {
        "qwen3": renderers.Qwen3RendererConfig,
        "qwen2_5": lambda: renderers.DefaultRendererConfig(tool_parser="qwen3"),
        "llama3_1": renderers.Llama3RendererConfig,
    }[name]()
    replies, given = iter(conversation["requests"]), []
    folder = tokenizers / name
    if name == "llama3_1":
        folder = tokenizers / "llama3_1-eom"  # verifiers' renderer asks for a token that this copy lacks
        tokenizer = AutoTokenizer.from_pretrained(tokenizers / name)
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|eom_id|>"]})
        tokenizer.save_pretrained(folder)

    async def generate(request: web.Request) -> web.Response:
        prompt, one = (await request.json())["token_ids"], next(replies)
        given.append((prompt, one["reply"]))
        content = [{"token": f"token_id:{i}", "logprob": p} for i, p in zip(one["reply"], one["logprobs"], strict=True)]
        choice = {"index": 0, "token_ids": one["reply"], "logprobs": {"content": content}, "finish_reason": "stop"}
        return web.json_response({"request_id": "r", "choices": [choice]})

    app = web.Application(client_max_size=2**26)
    app.router.add_post("/inference/v1/generate", generate)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    client = TrainClient(
        TrainClientConfig(base_url=url, api_key_var="NONE", renderer=config, renderer_model_name=str(folder))
    )
    trace = Trace(task=TraceTask(type="Task", data=TaskData(id="t")), agent=AgentInfo(config=AgentConfig()))
    dialect = ChatDialect()

    async def ask(messages: Sequence[Message], tools: bool) -> Message:
        body = {"model": "m", "messages": copy.deepcopy(list(messages)), **({"tools": TOOLS} if tools else {})}
        asked = dialect.parse_request(body)
        turn = graph.prepare_turn(trace, asked.messages, asked.tools)
        response = await client.get_response(dialect, body, SamplingConfig(), turn=turn)
        turn.commit(response)
        return dict(response.raw["choices"][0]["message"])

    try:
        await work(conversation["case"], ask)
    finally:
        await client.close()
        await runner.cleanup()
    return {"rows": _rows_of(trace), "given": given}


def _rows_of(trace: Any) -> list[Row]:
    """Return the rows of a trace of verifiers', as prime-rl trains them: a node that paths share is trained once."""
    rows: list[Row] = []
    trained: set[int] = set()
    for branch in (one for one in trace.branches if one.trainable):
        mask: list[int] = []
        for node in branch.nodes:
            mask += [int(own and id(node) not in trained) for own in node.mask]
            trained.add(id(node))
        if any(mask):
            rows.append((branch.token_ids, mask))
    return rows


JOINS: Mapping[str, Callable[[Mapping[str, Any], Path], dict[str, Any]]] = {
    "TRL": with_trl,
    "OpenEnv": with_openenv,
    "verifiers": with_verifiers,
    "tinker-cookbook": with_tinker,
    "NeMo Gym": with_nemo_gym,
}


# The table


def counted(joined: Mapping[str, Any]) -> Counter[str]:
    """Count what a framework's rows train: each sampled token by the request whose context stands before it."""
    given: list[Request] = [tuple(one) for one in joined["given"]]
    counts = Counter(conversations=1, sampled=sum(len(reply) for _, reply in given), rows=len(joined["rows"]))
    seen: set[tuple[int, int]] = set()
    for tokens, mask in joined["rows"]:
        counts["tokens"] += len(tokens)
        true: dict[int, list[tuple[int, int]]] = {}
        for number, (prompt, reply) in enumerate(given):
            if tokens[: len(prompt)] == prompt:
                for place in range(_common(tokens[len(prompt) :], reply)):
                    true.setdefault(len(prompt) + place, []).append((number, place))
        for place in (place for place, trained in enumerate(mask) if trained):
            free = [one for one in true.get(place, ()) if one not in seen]
            counts["never given"] += place not in true
            counts["twice"] += place in true and not free
            seen |= set(free[:1]) if place in true else {(-1, counts["never given"])}
    counts["trained"] = len(seen)
    return counts


def _common(ours: Sequence[int], theirs: Sequence[int]) -> int:
    return next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))


def show(folder: Path, conversations: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of all frameworks, by case over all templates, and by template over all cases."""
    results = {OURS: [counted(one["ours"]) for one in conversations]}
    for name in WHEELS:
        told = json.loads((folder / f"{PACKAGES[name]}.json").read_text())
        results[f"{name} {told['version']}"] = [Counter() if one is None else counted(one) for one in told["joined"]]
    for key in ("case", "template"):
        print(f"\n| {key} | joined by | of | trained | rows | tokens | never given |\n|---|---|---|---|---|---|---|")
        for value in dict.fromkeys(one[key] for one in conversations):
            for name, counts in results.items():
                line = sum((c for c, one in zip(counts, conversations, strict=True) if one[key] == value), Counter())
                print(f"| {value} | {name} | {_line(line)} |")
    print("\n| joined by | of | trained | rows | tokens | never given |\n|---|---|---|---|---|---|")
    for name, counts in results.items():
        print(f"| {name} | {_line(sum(counts, Counter()))} |")


def _line(counts: Counter[str]) -> str:
    if not counts["conversations"]:
        return "0 | | | | "
    sampled = counts["sampled"]
    twice = f" ({counts['twice'] / sampled:.0%})" if counts["twice"] else ""
    never = counts["never given"] / (counts["trained"] + counts["twice"] or 1)
    of = counts["conversations"]
    return f"{of} | {counts['trained'] / sampled:.0%}{twice} | {counts['rows']} | {counts['tokens']} | {never:.0%}"


if __name__ == "__main__":
    main()
