"""Train the first adapter of SmolLM2-135M: `python -m envs.swe warmstart`.

As published, that model never makes a valid call, so no reward ever differs and nothing can be
learnt. Supervised training on transcripts of made-up tasks (`envs.lab.synthetic`) gives it the format
and the commands. The transcripts of the full recipe come from two solvers without any label: one plans in a
few words, then takes the right command; the other acts at once, mostly wrongly. The choice between them is left
to reinforcement learning. An adapter is made on first use and kept in the cache of models. For a foreign
agent the transcripts are in its manner (`envs.lab.manner`).
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import shutil
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from atropos_agent.fitted import AUTO, FittedFormat
from atropos_agent.formats import load_format
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, NO_LOGPROB, AgentError, Reply, SequenceData
from envs.lab.manner import Manner, foreign
from envs.lab.parts import lacking, output_of
from envs.lab.synthetic import Example, examples, expert, hasty, transcripts
from envs.messages import SWE, as_called
from envs.records.progress import Bar
from envs.types import InfraError
from sandboxes.arguments import WRONG_USE, Parser, count, file, folder, named, natural, positive
from sandboxes.base import SandboxError
from sandboxes.log import set_up_log

if TYPE_CHECKING:
    from atropos_agent.cpu_engine.model import LoadedModel

CACHE = Path("~/.cache/atropos-agent")
"""The folder of models and adapters."""

_THREADS = min(4, os.cpu_count() or 1)
"""Threads of one operation of a small model alone on the machine."""

_TEST_SEED = 1_000_003
"""Seed of the tasks to try a trained adapter on; training takes small seeds."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """An adapter's recipe: the same recipe gives the same adapter.

    model: the embedded inference server's name of it. examples: transcripts to train on; kinds: of their tasks, all
        when empty. planned: the share of transcripts from the planning solver; decided: the share of these that
        teaches to begin so. learning_rate: at the start; it falls to 0. revision: raised when prompts or training
        change, so no old adapter is taken for new. tool_format: as `--env.tool_format`. agent: at work on the
        tasks, as `--env.agent`; "" for our own. whole: one transcript in so many is whole, the others in the
        agent's brief manner (`Manner.brief`). autocast: as `lora.Recipe`.
    """

    examples: int
    planned: float
    decided: float
    kinds: tuple[str, ...] = ()
    model: str = "smollm2"
    rank: int = 8
    learning_rate: float = 2e-3
    batch: int = 8
    seed: int = 0
    revision: int = 1
    # Adapters of the model's own format keep the names that they had when there was no other.
    tool_format: str = field(default=AUTO, repr=False)
    agent: str = field(default="", repr=False)
    whole: int = field(default=1, repr=False)
    autocast: bool = field(default=False, repr=False)

    @property
    def digest(self) -> str:
        """Return the name of the recipe and its tasks, 12 hexadecimal digits, behind those of a format and an agent."""
        content = repr((self, examples(self.examples, self.seed, self.kinds)))
        asked = "" if self.tool_format == AUTO else f"{self.tool_format.replace('/', '.')}-"
        if (agent := foreign(self.agent)) is not None:
            content, asked = content + repr(agent.recipe), f"{asked}{agent.name}-"
        if self.whole > 1 or self.autocast:
            content += repr((self.whole, self.autocast))
        return asked + hashlib.sha256(content.encode()).hexdigest()[:12]

    def path(self, cache: Path = CACHE) -> Path:
        """Return the adapter's present or future folder."""
        return cache.expanduser() / "adapters" / f"warm-start-{self.digest}.safetensors"


EASY = ("append_line", "copy_file", "create_file", "make_directory")
"""Kinds of tasks for the quick recipe."""

RECIPES = {
    # Right commands alone, of few kinds: enough for calls that parse and many solved tasks of these, in minutes.
    # After 80 transcripts none of the demo's tasks is solved.
    "quick": Recipe(examples=120, planned=1.0, decided=1.0, kinds=EASY),
    # Much is to be learnt from the one who plans, but not that this is the one to follow.
    "full": Recipe(examples=2106, planned=0.75, decided=0.22),
    # An agent's opening is longer than all of our own agent's transcript, so that there is time for few whole ones.
    "few": Recipe(examples=400, planned=0.75, decided=0.22, kinds=EASY, revision=2, whole=4, autocast=True),
}


async def adapter(
    name: str, *, given: Path | None = None, cache: Path = CACHE, log: Path | None = None, agent: str = ""
) -> Path:
    """Return the user's adapter, or that of a recipe, made if missing.

    agent: with the manner to learn; "" for our own. log: a file for the messages meanwhile; our stderr without
    one. Raises FileNotFoundError when the given one is missing, PartError when none can be made.
    """
    known = find(name, given, cache, agent)
    if known is None:
        # A process of its own can be stopped, and gives its memory back.
        options = ["--recipe", name, "--trials", "0", "--cache", str(cache), "--threads", str(_THREADS)]
        options += ["--agent", agent] if agent else []
        known = Path(await output_of("warmstart", "-m", "envs.lab.warm_start", *options, log=log))
    return known


def find(name: str, given: Path | None = None, cache: Path = CACHE, agent: str = "") -> Path | None:
    """Return the user's adapter, or that of a recipe; None if it was not made yet.

    The full recipe's for the same agent, if present, is taken in place of any other. Raises FileNotFoundError.
    """
    if given is not None and not given.exists():
        raise FileNotFoundError(f"--adapter {given}: there is no such file")
    if given is not None:
        return given
    places = [replace(RECIPES[one], agent=agent).path(cache) for one in ("full", name)]
    return next((path for path in places if path.is_file()), None)


def main(argv: list[str]) -> int:
    """Make an adapter, or find it, and say how well the model then calls tools. Return the exit status."""
    options = _parser().parse_args(argv)
    console = Console(stderr=True)
    if (wrong := lacking("warmstart", smollm2=RECIPES[options.recipe].model == "smollm2")) is not None:
        console.print(wrong, markup=False)
        return WRONG_USE
    # Imported here, so that `adapter` stays free of PyTorch.
    import torch
    from transformers.utils.logging import disable_progress_bar

    from atropos_agent.cpu_engine.model import load

    disable_progress_bar()
    # peft 0.21 asks transformers 5 by a name that the latter renames in version 6.
    warnings.filterwarnings("ignore", ".is_gradient_checkpointing. is deprecated", FutureWarning)
    set_up_log()
    torch.set_num_threads(options.threads)
    names = ("examples", "rank", "learning_rate", "seed", "tool_format", "agent")
    given = {name: getattr(options, name) for name in names}
    recipe = replace(RECIPES[options.recipe], **{name: value for name, value in given.items() if value is not None})
    cache = options.cache
    try:
        trained = make(recipe, cache, console)
    except (AgentError, InfraError, SandboxError, ValueError) as error:
        console.print(f"warmstart: {error}", markup=False)
        return 1
    if options.out is not None:
        shutil.copyfile(trained, options.out)
    if options.trials:
        parsed, planned, exact = try_out(load(recipe.model, cache=cache, adapter=trained), options.trials, recipe)
        console.print(
            f"{options.trials} replies to unseen tasks at temperature 1: {parsed:.0%} hold a call that parses, "
            f"{planned:.0%} begin with a plan, {exact:.0%} hold the expert's own command",
            markup=False,
        )
    print(options.out or trained)
    return 0


def make(recipe: Recipe, cache: Path, console: Console) -> Path:
    """Return a recipe's adapter, trained if the cache has none. Progress goes to the console."""
    # As in `main`.
    from transformers import AutoTokenizer

    from atropos_agent.cpu_engine import lora
    from atropos_agent.cpu_engine.model import locate

    path = recipe.path(cache)
    if path.is_file():
        console.print(f"trained before: {path}", markup=False)
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    console.print(f"warm start: {recipe.examples} transcripts …")
    model = locate(recipe.model, cache)
    rows = asyncio.run(lessons(recipe, AutoTokenizer.from_pretrained(model)))
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


async def lessons(recipe: Recipe, tokenizer: object) -> list[SequenceData]:
    """Return a recipe's rows to train on, of made-up tasks."""
    rng = random.Random(recipe.seed)
    tasks = examples(recipe.examples, recipe.seed, recipe.kinds)
    planned = {task.instruction for task in tasks if rng.random() < recipe.planned}

    def replies(task: Example) -> list[Reply]:
        return expert(task) if task.instruction in planned else hasty(task, rng)

    rows = await _collect(tasks, tokenizer, replies, recipe)
    for place, task in enumerate(tasks):
        if task.instruction in planned and rng.random() >= recipe.decided:
            rows[place] = _begun(rows[place])
        if place % 4:  # The second reply is always the same; to see it now and then is enough.
            rows[place] = _opening(rows[place])
    return rows


def try_out(loaded: LoadedModel, trials: int, recipe: Recipe) -> tuple[float, float, float]:
    """Sample one first reply to each of `trials` unseen tasks of the recipe's kinds, at temperature 1.

    Returns the share with exactly one call and nothing malformed, the share with text
    before it, and the share with the expert's own call: a lower bound of the tasks solved.
    """
    # As in `main`.
    from atropos_agent.cpu_engine.sampling import SamplingParams
    from atropos_agent.cpu_engine.scheduler import Engine

    tasks = examples(trials, _TEST_SEED, recipe.kinds)
    rows = asyncio.run(_collect(tasks, loaded.tokenizer, expert, replace(recipe, whole=1)))
    prompts = [list(row.tokens[: _first_trained(row)]) for row in rows]
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
    agent = foreign(recipe.agent)
    if agent is None:
        return [row async for row in transcripts(tasks, tokenizer, replies, recipe.tool_format)]
    manner = await Manner.heard(agent, tokenizer, recipe.tool_format)
    rows = dict[int, SequenceData]()
    for one, is_whole in ((manner, True), (manner.brief(), False)):
        places = [place for place in range(len(tasks)) if (place % recipe.whole == 0) == is_whole]
        told = one.transcripts([tasks[place] for place in places], tokenizer, replies, recipe.tool_format)
        rows |= zip(places, [row async for row in told], strict=True)
    return [rows[place] for place in range(len(tasks))]


def _opening(row: SequenceData) -> SequenceData:
    """Return the row up to the end of its first reply; `full_text` is left as it is."""
    trained = [label != IGNORED for label in row.masked_tokens]
    end = next((place for place in range(_first_trained(row), len(trained)) if not trained[place]), len(trained))
    return replace(row, tokens=row.tokens[:end], masked_tokens=row.masked_tokens[:end], logprobs=row.logprobs[:end])


def _begun(row: SequenceData) -> SequenceData:
    """Return the row without its first trained token; that token decides whether there is a plan."""
    masked, logprobs = list(row.masked_tokens), list(row.logprobs)
    first = _first_trained(row)
    masked[first], logprobs[first] = IGNORED, NO_LOGPROB
    return replace(row, masked_tokens=masked, logprobs=logprobs)


def _first_trained(row: SequenceData) -> int:
    return next(place for place, label in enumerate(row.masked_tokens) if label != IGNORED)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog=as_called(f"{SWE} warmstart"), description=as_called(__doc__))
    add = parser.add_argument
    add("--recipe", choices=sorted(RECIPES), default="full", help="what it is made of (default: %(default)s)")
    add("--examples", type=count, help="transcripts to train on, instead of the recipe's")
    add("--rank", type=count, help="of the adapter, instead of the recipe's")
    add("--learning-rate", type=positive, help="at the start, instead of the recipe's")
    add("--seed", type=int, help="of tasks and training, instead of the recipe's")
    add("--tool-format", type=_tool_format, help="in which calls are taught, as --env.tool_format (default: auto)")
    add("--agent", type=named, help="who attempts the tasks: a name of docs/agents.md, or a file (default: our own)")
    add("--trials", type=natural, default=54, help="replies to try it with afterwards (default: %(default)s)")
    add("--threads", type=count, default=1, help="threads of one operation (default: %(default)s)")
    add("--out", type=file, help="copy the adapter to this file as well")
    add("--cache", type=folder, default=CACHE, help="folder of models and adapters (default: %(default)s)")
    return parser


def _tool_format(text: str) -> str:
    """Return the name or dotted path of a tool format."""
    try:
        if text != AUTO:
            load_format(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
