"""Train an adapter by a recipe, and try it. This imports PyTorch."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from transformers import AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from atropos_agent.cpu_engine import lora
from atropos_agent.cpu_engine.model import load, locate
from atropos_agent.cpu_engine.sampling import SamplingParams
from atropos_agent.cpu_engine.scheduler import Engine
from atropos_agent.fitted import FittedFormat
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, NO_LOGPROB, Reply, SequenceData
from envs.agents.naming import find_foreign_agent
from envs.lab.manner import Manner
from envs.lab.recipes import Recipe
from envs.lab.synthetic import Example, examples, expert_replies, hasty_replies
from envs.lab.transcripts import transcripts
from envs.records.progress import Bar

_TEST_SEED = 1_000_003
"""Seed of the tasks to try a trained adapter on; training takes small seeds."""


def set_up(threads: int) -> None:
    """Compute with so many threads, and without messages of libraries."""
    disable_progress_bar()
    # peft 0.21 asks transformers 5 by a name that the latter renames in version 6.
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing. is deprecated", FutureWarning)
    torch.set_num_threads(threads)


def make(recipe: Recipe, cache: Path, console: Console) -> Path:
    """Return a recipe's adapter, trained if the cache has none. Progress goes to the console."""
    path = recipe.path(cache)
    if path.is_file():
        console.print(f"trained before: {path}", markup=False)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    console.print(f"warm start: {recipe.examples} transcripts …")
    model = locate(recipe.model, cache)
    rows = asyncio.run(make_training_rows(recipe, AutoTokenizer.from_pretrained(model)))
    training = lora.Recipe(
        rank=recipe.rank,
        alpha=2 * recipe.rank,
        learning_rate=recipe.learning_rate,
        batch=recipe.batch,
        seed=recipe.seed,
        autocast=recipe.autocast,
    )
    with Bar("warm start", len(rows), console=console) as bar:
        on_step = lambda done, loss: bar.update(done, f"loss {loss:.2f}")  # noqa: E731
        lora.save(lora.train(model, rows, training, on_step), training, path)
    return path


async def make_training_rows(recipe: Recipe, tokenizer: object) -> list[SequenceData]:
    """Return a recipe's rows to train on, of made-up tasks."""
    rng = random.Random(recipe.seed)
    tasks = examples(recipe.examples, recipe.seed, recipe.kinds)
    planned = {task.instruction for task in tasks if rng.random() < recipe.planned}

    def replies(task: Example) -> list[Reply]:
        return expert_replies(task) if task.instruction in planned else hasty_replies(task, rng)

    rows = await _collect(tasks, tokenizer, replies, recipe)
    for place, task in enumerate(tasks):
        if task.instruction in planned and rng.random() >= recipe.decided:
            rows[place] = _untrain_first_token(rows[place])
        if place % 4:  # The second reply is always the same; to see it now and then is enough.
            rows[place] = _cut_after_first_reply(rows[place])
    return rows


def measure_replies(recipe: Recipe, cache: Path, adapter: Path, trials: int) -> tuple[float, float, float]:
    """Sample one first reply with an adapter to each of `trials` unseen tasks of the recipe's kinds, at temperature 1.

    Returns the share with exactly one call and nothing malformed, the share with text
    before it, and the share with the expert's own call: a lower bound of the tasks solved.
    """
    loaded = load(recipe.model, cache=cache, adapter=adapter)
    tasks = examples(trials, _TEST_SEED, recipe.kinds)
    rows = asyncio.run(_collect(tasks, loaded.tokenizer, expert_replies, replace(recipe, whole=1)))
    prompts = [list(row.tokens[: _first_trained_place(row)]) for row in rows]
    engine = Engine(loaded.model, loaded.tokenizer, loaded.eos_ids)
    engine.start()
    try:
        texts = engine.complete(prompts, SamplingParams(max_tokens=128, seed=0))
    finally:
        engine.stop()
    fitted = FittedFormat.of(recipe.tool_format, ChatTemplate(loaded.tokenizer))
    replies = [fitted.read(text, first_id=0, thinking_open=False) for text in texts]
    parsed = [len(reply.calls) == 1 and not reply.problems for reply in replies]
    exact = [
        good and list(reply.calls[0].arguments.values()) == [task.command]
        for good, reply, task in zip(parsed, replies, tasks, strict=True)
    ]
    planned = [bool(reply.content or reply.thinking) for reply in replies]
    return sum(parsed) / trials, sum(planned) / trials, sum(exact) / trials


async def _collect(
    tasks: Sequence[Example], tokenizer: object, replies: Callable[[Example], list[Reply]], recipe: Recipe
) -> list[SequenceData]:
    agent = find_foreign_agent(recipe.agent)
    if agent is None:
        return [row async for row in transcripts(tasks, tokenizer, replies, recipe.tool_format)]
    manner = await Manner.record(agent, tokenizer, recipe.tool_format)
    rows = dict[int, SequenceData]()
    for one, is_whole in ((manner, True), (manner.brief(), False)):
        places = [place for place in range(len(tasks)) if (place % recipe.whole == 0) == is_whole]
        found = one.transcripts([tasks[place] for place in places], tokenizer, replies, recipe.tool_format)
        rows |= zip(places, [row async for row in found], strict=True)
    return [rows[place] for place in range(len(tasks))]


def _cut_after_first_reply(row: SequenceData) -> SequenceData:
    """Return the row up to the end of its first reply; `full_text` is left as it is."""
    trained = [label != IGNORED for label in row.masked_tokens]
    end = next((place for place in range(_first_trained_place(row), len(trained)) if not trained[place]), len(trained))
    return replace(row, tokens=row.tokens[:end], masked_tokens=row.masked_tokens[:end], logprobs=row.logprobs[:end])


def _untrain_first_token(row: SequenceData) -> SequenceData:
    """Return the row without its first trained token; that token decides whether there is a plan."""
    masked, logprobs = list(row.masked_tokens), list(row.logprobs)
    first = _first_trained_place(row)
    masked[first], logprobs[first] = IGNORED, NO_LOGPROB
    return replace(row, masked_tokens=masked, logprobs=logprobs)


def _first_trained_place(row: SequenceData) -> int:
    return next(place for place, label in enumerate(row.masked_tokens) if label != IGNORED)
