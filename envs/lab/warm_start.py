"""Trains the adapter with which SmolLM2-135M begins: `python -m envs.swe warmstart`.

As it comes, that model never makes a call that parses, so no reward ever differs and nothing can be
learnt. A quarter of an hour of supervised training on transcripts of made-up tasks
(`envs.lab.synthetic`) gives it the format and the commands. The transcripts are of two who are not
told apart: one plans in a few words, then takes the right command; the other acts at once, mostly
wrongly. Whom to follow is left to reinforcement learning. The package ships the result; this command
remakes it.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import random
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from atropos_agent.formats.hermes import CALL, Hermes
from atropos_agent.types import IGNORED, NO_LOGPROB, SequenceData
from envs.lab.synthetic import TOOLS, Example, examples, expert, hasty, transcripts

if TYPE_CHECKING:
    from atropos_agent.cpu_engine.lora import Recipe
    from atropos_agent.cpu_engine.model import LoadedModel

SHIPPED = Path(__file__).parent / "warm_start.safetensors"

PLANNED, DECIDED = 0.75, 0.22
"""Share of the transcripts that are of the one who plans, and share of these that teach to begin so: much is
to be learnt from them, but not that they are the ones to follow."""

_TEST_SEED = 1_000_003
"""Of the tasks on which a trained adapter is tried; training takes small seeds."""


def adapter() -> Path:
    """The adapter that comes with the package. Raises FileNotFoundError with the remedy."""
    if not SHIPPED.is_file():
        raise FileNotFoundError(f"{SHIPPED} is missing; make it with: python -m envs.swe warmstart --out {SHIPPED}")
    return SHIPPED


def main(argv: list[str]) -> int:
    """Train, or find the same training's result, and say how well the model then calls tools."""
    options = _parser().parse_args(argv)
    console = Console(stderr=True)
    if find_spec("torch") is None or find_spec("peft") is None:
        console.print("warmstart needs the package's engine extra: pip install 'atropos-agent[engine]'", markup=False)
        return 1
    # Imported here, so that `adapter` stays free of PyTorch.
    import torch
    from transformers import AutoTokenizer

    from atropos_agent.cpu_engine.lora import Recipe
    from atropos_agent.cpu_engine.model import DEFAULT_CACHE, load, locate

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    torch.set_num_threads(options.threads)
    cache = options.cache or DEFAULT_CACHE
    recipe = Recipe(
        rank=options.rank, alpha=2 * options.rank, learning_rate=options.learning_rate, batch=8, seed=options.seed
    )
    model = locate("smollm2", cache)
    rows = asyncio.run(lessons(options.examples, options.seed, AutoTokenizer.from_pretrained(model)))
    name = f"warmstart-{fingerprint(rows, recipe)[:12]}.safetensors"
    trained = cache.expanduser() / "adapters" / name
    if trained.is_file():
        console.print(f"trained before: {trained}", markup=False)
    else:
        trained.parent.mkdir(parents=True, exist_ok=True)
        _train(model, rows, recipe, trained, console)
    if options.out is not None:
        shutil.copyfile(trained, options.out)
    if options.trials:
        parsed, planned, exact = try_out(load("smollm2", cache=cache, adapter=trained), options.trials)
        console.print(
            f"{options.trials} replies to unseen tasks at temperature 1: {parsed:.0%} hold a call that parses, "
            f"{planned:.0%} begin with a plan, {exact:.0%} hold the expert's own command",
            markup=False,
        )
    print(options.out or trained)
    return 0


async def lessons(count: int, seed: int, tokenizer: object) -> list[SequenceData]:
    """`count` rows to train on, of made-up tasks from a seed."""
    rng = random.Random(seed)
    tasks = examples(count, seed)
    planned = {task.instruction for task in tasks if rng.random() < PLANNED}

    def replies(task: Example) -> list[str]:
        return expert(task) if task.instruction in planned else hasty(task, rng)

    rows = await _collect(tasks, tokenizer, replies)
    for place, task in enumerate(tasks):
        if task.instruction in planned and rng.random() >= DECIDED:
            rows[place] = _begun(rows[place])
        if place % 4:  # The second reply is always the same; to see it now and then is enough.
            rows[place] = _opening(rows[place])
    return rows


def fingerprint(rows: Sequence[SequenceData], recipe: Recipe) -> str:
    """Names what a training depends on: the same rows and recipe give the same adapter."""
    content = json.dumps([asdict(recipe), [[list(row.tokens), list(row.masked_tokens)] for row in rows]])
    return hashlib.sha256(content.encode()).hexdigest()


def try_out(loaded: LoadedModel, trials: int) -> tuple[float, float, float]:
    """Sample one first reply to each of `trials` unseen tasks, at temperature 1.

    Returns the share that holds exactly one call and nothing malformed, the share that says something
    before it, and the share whose call is the expert's own: a lower bound of the tasks solved.
    """
    from atropos_agent.cpu_engine.sampling import SamplingParams
    from atropos_agent.cpu_engine.scheduler import Engine

    tasks = examples(trials, _TEST_SEED)
    rows = asyncio.run(_collect(tasks, loaded.tokenizer, expert))
    prompts = [list(row.tokens[: _first_trained(row)]) for row in rows]
    engine = Engine(loaded.model, loaded.tokenizer, loaded.eos_ids)
    engine.start()
    try:
        texts = engine.complete(prompts, SamplingParams(max_tokens=128, seed=0))
    finally:
        engine.stop()
    replies = [Hermes().parse(text) for text in texts]
    parsed = [len(reply.calls) == 1 and not reply.problems for reply in replies]
    exact = [
        good and reply.calls[0].name == TOOLS[0] and reply.calls[0].arguments == {"command": task.command}
        for good, reply, task in zip(parsed, replies, tasks, strict=True)
    ]
    planned = [not text.lstrip().startswith(CALL) for text in texts]
    return sum(parsed) / trials, sum(planned) / trials, sum(exact) / trials


def _train(model: Path, rows: Sequence[SequenceData], recipe: Recipe, path: Path, console: Console) -> None:
    from atropos_agent.cpu_engine.lora import save, train

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("warm start", total=len(rows))

        def on_step(done: int, loss: float) -> None:
            progress.update(bar, completed=done, description=f"warm start, loss {loss:.2f}")

        save(train(model, rows, recipe, on_step), recipe, path)


async def _collect(
    tasks: Sequence[Example], tokenizer: object, replies: Callable[[Example], list[str]]
) -> list[SequenceData]:
    return [row async for row in transcripts(tasks, tokenizer, replies)]


def _opening(row: SequenceData) -> SequenceData:
    """The row up to the end of its first reply; `full_text` is left as it is."""
    trained = [label != IGNORED for label in row.masked_tokens]
    end = trained.index(False, trained.index(True))
    return replace(row, tokens=row.tokens[:end], masked_tokens=row.masked_tokens[:end], logprobs=row.logprobs[:end])


def _begun(row: SequenceData) -> SequenceData:
    """The row without its first trained token, which says whether there is a plan."""
    masked, logprobs = list(row.masked_tokens), list(row.logprobs)
    first = _first_trained(row)
    masked[first], logprobs[first] = IGNORED, NO_LOGPROB
    return replace(row, masked_tokens=masked, logprobs=logprobs)


def _first_trained(row: SequenceData) -> int:
    return next(place for place, label in enumerate(row.masked_tokens) if label != IGNORED)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envs.swe warmstart", description=__doc__)
    parser.add_argument("--examples", type=int, default=2106, help="transcripts to train on (default: %(default)s)")
    parser.add_argument("--rank", type=int, default=8, help="of the adapter (default: %(default)s)")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="at the start (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of tasks and training (default: %(default)s)")
    parser.add_argument(
        "--trials", type=int, default=54, help="replies to try it with afterwards (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of one operation (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="copy the adapter to this file as well")
    parser.add_argument("--cache", type=Path, help="folder of models and adapters (default: ~/.cache/atropos-agent)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
