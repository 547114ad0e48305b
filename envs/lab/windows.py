"""Tasks that are longer than the window, and a policy that sums up its work well or badly.

A log has six pages, each shown once. The first one has a word, the last one another, and both are to be written down.
The window of the preset is full after three pages and again after the sixth, so the first word has to go through
two summaries. The policy is pre-trained on dialogues of one job: half of their summaries leave the word out, and the
rest of each dialogue follows from that. Reinforcement learning then has to find the summaries that pay.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from atropos_agent.agent import AtroposAgent
from atropos_agent.compaction import SUM_UP, SUMMED_UP, summary
from atropos_agent.engines.scripted import ScriptedServer
from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import AUTO
from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.turns import Turns
from atropos_agent.types import IGNORED, NO_LOGPROB, AgentConfig, SequenceData
from envs.agents.facts import ForeignAgent, Place
from envs.lab.presets import WINDOWS_TOOLS
from envs.lab.recording import RecordedRollout, Script
from envs.lab.smoke import cached_model
from envs.lab.synthetic import WORKING_DIR, Example, call
from envs.lab.words import WORDS
from sandboxes.naming import lazy_import
from tools import ToolCall, ToolResult, default_tools

PAGES = 6
SUMMED_UP_AFTER = (3, 6)
"""Pages after which the window is full."""
FOREIGN_AFTER = (1, 4)
"""The same for a foreign agent that keeps nothing but its summary."""

FIRST, LAST, FILLING = WORDS[:16], WORDS[100:108], WORDS[200:224]
PRACTISED = 10
"""First words of the tasks to train on; the others are those of the tasks to evaluate on."""
READ = ("Read the log by sh next", "Go through the log with sh next", "sh next shows the log page by page")
WRITE = ("write its two words to out", "save the two words in out", "put both words into the file out")

_END = "The log ends here."
FLAWED = 0.5
"""Share of summaries without the word."""
_SUMMARY = "Up to page {page} the first word is {first}."
_FLAWED = ("I have read up to page {page}.", "There was nothing new up to page {page}.")
_LOST = 0.25
"""Share of dialogues with a lost word that go on to their end."""
_UNKNOWN = "unknown"
"""Stands in the place of a word that was lost."""
_NEXT = """\
page=$(ls pages | head -n 1)
cat "pages/$page" && rm "pages/$page"
"""

_SCRATCH = lazy_import("atropos_agent.cpu_engine.scratch")
"""Needs PyTorch, and the tasks do not."""
_VOCABULARY = 1400
_RECORDED_VOCABULARY = 2600
_DIALOGUES = 400
_STEPS = 600
_WHOLE = 3
"""One dialogue in so many has pages as long as the tasks'; shorter ones cost less."""
_RECORDED_STEPS = 200
_DRILLS = 900
"""Texts that say two words again and again. Dialogues alone would take ten times as long to teach a repetition."""


def tasks() -> tuple[list[Example], list[Example]]:
    """Return the tasks to train on and to evaluate on, with other words and wordings."""
    rng = random.Random(0)
    train, held_out = _wordings()
    first, unseen = FIRST[:PRACTISED], FIRST[PRACTISED:]
    return (
        [_example(i, train[i % len(train)], first[i % len(first)], rng) for i in range(12)],
        [_example(i, held_out[i % len(held_out)], unseen[i % len(unseen)], rng) for i in range(12)],
    )


def model(cache: Path, on_step: Callable[[int, float], None] | None = None, agent: ForeignAgent | None = None) -> Path:
    """Return the folder of the model, made in some minutes if missing; for a foreign `agent` one of its own.

    Raises InfraError, SandboxError, AgentError if that agent can't be recorded."""

    def make(folder: Path) -> None:
        make_model = _SCRATCH().make_model
        rng = random.Random(0)
        recorded = None if agent is None else asyncio.run(record_agent(agent))
        tokenizer = asyncio.run(make_word_tokenizer(rng, recorded))
        rows = asyncio.run(dialogues(_DIALOGUES, tokenizer, rng, recorded))
        drills = _repetition_rows(_DRILLS, tokenizer, rng, recorded)
        make_model([*rows, *drills], tokenizer, folder, steps=_STEPS, on_step=on_step)
        if recorded is not None:
            # Summaries are rows of their own, so one row in five says the last word: it needs more.
            rows += 2 * [row for row in rows if _END in row.full_text and "> out" in row.full_text]
            rows += 3 * drills
            steps = _RECORDED_STEPS
            make_model(rows, tokenizer, folder, steps=steps, learning_rate=2e-3, begun=folder, on_step=on_step)

    texts = (Hermes().instructions(()), Hermes().correction(()), SUM_UP, SUMMED_UP)
    parts = (FIRST, LAST, FILLING, READ, WRITE, _FLAWED, FLAWED, _NEXT, _WHOLE, _VOCABULARY, _DIALOGUES, _DRILLS)
    if agent is None:
        return cached_model(cache, "windows", (texts, parts, _STEPS), make)
    others = (FOREIGN_AFTER, _RECORDED_VOCABULARY, _RECORDED_STEPS, agent.recipe, agent.start(Place("", "", "")))
    return cached_model(cache, f"windows-{agent.name}", (texts, parts, _STEPS, *others), make)


async def make_word_tokenizer(rng: random.Random, recorded: RecordedRollout | None = None) -> Any:
    """Return a tokenizer that has the words of such dialogues as a token each."""
    make_tokenizer = _SCRATCH().make_tokenizer
    rows = await dialogues(_DIALOGUES // 4, make_tokenizer([], 0), rng, recorded)
    return make_tokenizer([row.full_text for row in rows], _RECORDED_VOCABULARY if recorded else _VOCABULARY)


async def record_agent(agent: ForeignAgent) -> RecordedRollout:
    """Record an agent that reads such a log. Raises InfraError, SandboxError, AgentError if it can't."""
    # As long as those of the tasks are at least: an agent decides by length how much it keeps.
    pages = [f"Page {page}: {' '.join(['heard'] * 12)}" for page in range(1, PAGES + 1)]
    files = {"next": _NEXT, **{f"pages/{place}": f"{text}\n" for place, text in enumerate(pages)}}
    sums = [f"Summary {number} of this work." for number in range(1, len(FOREIGN_AFTER) + 1)]
    script = Script("Read the log as it is heard.", [*["sh next"] * PAGES, "true"], pages, sums)
    return await RecordedRollout.record(agent, _SCRATCH().make_tokenizer([], 0), script, files, FOREIGN_AFTER)


def _wordings() -> tuple[list[str], list[str]]:
    """Return the wordings to train on, and a third of all to evaluate on."""
    every = [f"{read}, and {write}." for read in READ for write in WRITE]
    random.Random(0).shuffle(every)
    return every[3:], every[:3]


def _make_pages(first: str, last: str, rng: random.Random, *, whole: bool) -> list[str]:
    """Return the pages of a log. whole: as long as those of the tasks."""

    def filling(words: int) -> str:
        return " ".join(rng.choices(FILLING, k=words if whole else rng.randint(1, words // 4 + 2)))

    before = rng.randint(20, 150)
    pages = [f"{filling(before)}\nfirst word: {first}\n{filling(170 - before)}"]
    pages += [filling(12) for _ in range(PAGES - 2)]
    return [f"Page {i}: {text}" for i, text in enumerate([*pages, f"last word: {last}\n{_END}"], 1)]


def _example(number: int, wording: str, first: str, rng: random.Random) -> Example:
    last = rng.choice(LAST)
    # Tasks of one wording differ in the names of their files.
    pages = {f"pages/{number}-{i}": f"{text}\n" for i, text in enumerate(_make_pages(first, last, rng, whole=True), 1)}
    return Example("read_log", wording, _solution_command(first, last), {"next": _NEXT, **pages})


def _solution_command(first: str, last: str) -> str:
    """Return what solves a task, in one line."""
    return "; ".join([*["sh next > /dev/null"] * PAGES, _write_command(first, last)])


def _write_command(first: str, last: str) -> str:
    return f"echo {first} {last} > out"


class _Dialogue(AtroposAgent):
    """Sums up after the pages that fill a whole dialogue's window, however long its own are.

    summaries: so many; after fewer than there are pages for, the dialogue ends with the last of them."""

    summaries = len(SUMMED_UP_AFTER)

    async def work(self, turns: Turns) -> None:
        for page in range(1, PAGES + 1):
            await turns.execute((await turns.reply()).calls)
            if page in SUMMED_UP_AFTER[: self.summaries]:
                await summary(turns)
            if page == SUMMED_UP_AFTER[self.summaries - 1] and page < PAGES:
                return
        while turns.ended is None:
            await turns.execute((await turns.reply()).calls)


async def dialogues(
    count: int, tokenizer: Any, rng: random.Random, recorded: RecordedRollout | None = None
) -> list[SequenceData]:
    """Return the rows of dialogues, in which each summary of a known word is flawed as often as not."""
    held_out, wordings = {task.command for task in tasks()[1]}, _wordings()[0]
    rows: list[SequenceData] = []
    for _ in range(count):
        first, last = rng.choice(FIRST), rng.choice(LAST)
        while _solution_command(first, last) in held_out:
            first, last = rng.choice(FIRST), rng.choice(LAST)
        known = [rng.random() >= FLAWED]
        known.append(known[0] and rng.random() >= FLAWED)
        pages = _make_pages(first, last, rng, whole=rng.randrange(_WHOLE) == 0)
        sums = [
            (_SUMMARY if fine else rng.choice(_FLAWED)).format(page=page, first=first)
            for page, fine in zip(SUMMED_UP_AFTER if recorded is None else FOREIGN_AFTER, known, strict=True)
        ]
        commands = [*["sh next"] * PAGES, _write_command(first if known[-1] else _UNKNOWN, last)]
        if recorded is None:
            summaries = 2 if known[0] or rng.random() < _LOST else 1
            rows += await _own_agent_rows(Script(rng.choice(wordings), commands, pages, sums), tokenizer, summaries)
        else:
            date = f"20{rng.randint(25, 39)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
            script = Script(rng.choice(wordings), commands, pages, sums, date)
            rows += await recorded.rows(script, tokenizer, 0 if known[0] or rng.random() < _LOST else 2)
    return rows


async def _own_agent_rows(script: Script, tokenizer: Any, summaries: int) -> Sequence[SequenceData]:
    """Return the rows of our own agent's dialogue, up to the last of so many summaries."""
    template, tools = ChatTemplate(tokenizer), default_tools(None, WINDOWS_TOOLS)  # type: ignore[arg-type]  # never run
    fitted = FittedFormat.of(AUTO, template).with_tools(tools.schemas)
    outputs = iter([*script.outputs, "(no output)"])

    async def execute(tool_call: ToolCall) -> ToolResult:
        return ToolResult(next(outputs), call=tool_call)

    *looks, wrote = [fitted.format.turn(call("terminal", command=command)) for command in script.commands]
    for page, text in zip(reversed(SUMMED_UP_AFTER), reversed(script.summaries), strict=True):
        looks.insert(page, text)
    server = ScriptedServer([*looks, wrote, "Done."], tokenizer)
    config = AgentConfig(working_dir=WORKING_DIR, max_tokens=512)
    agent = _Dialogue(server, tools, config, execute_tool=execute, template=template, tool_format=fitted)
    agent.summaries = summaries
    return (await agent.run(script.task)).segments


def _repetition_rows(
    count: int, tokenizer: Any, rng: random.Random, recorded: RecordedRollout | None
) -> list[SequenceData]:
    """Return rows in which the two words alone are trained, where they are repeated."""
    rows = []
    for _ in range(count):
        first, last = rng.choice(FIRST), rng.choice(LAST)
        says = [f"first word: {first}", *[f"last word: {last}", _write_command(first, last)] * 2]
        says += [_SUMMARY.format(page=page, first=first) for page in (FOREIGN_AFTER if recorded else SUMMED_UP_AFTER)]
        parts = [rng.choice([*says, " ".join(rng.choices(FILLING, k=rng.randint(1, 8)))]) for _ in range(16)]
        tokens = tokenizer("\n".join(parts)).input_ids
        words = {tokenizer(f" {word}").input_ids[0] for word in (first, last)}
        labels = [one if one in words and one in tokens[:i] else IGNORED for i, one in enumerate(tokens)]
        if any(label != IGNORED for label in labels):
            logprobs = [NO_LOGPROB if label == IGNORED else -1.0 for label in labels]
            rows.append(SequenceData("", tokens, labels, logprobs))
    return rows
