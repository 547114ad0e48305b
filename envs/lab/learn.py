"""`python -m envs.swe learn`: a model gets better, on this machine, by one command.

It starts the Atropos API, the engine, the environment with Docker sandboxes and a trainer, evaluates
on held-out tasks before, during and after, and draws the curve. A part that dies is started again;
the same `--run-dir` given once more goes on where the run was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from envs.lab import smoke
from envs.lab.curve import Curve, Evaluation
from envs.lab.parts import PartError, Parts, answers, flags, run, until_signalled
from envs.lab.plots import findings, write_page
from envs.lab.practice import write_tasks
from envs.lab.rungs import RUNGS, Rung
from envs.lab.synthetic import examples
from envs.lab.warm_start import adapter
from envs.swe import STARTER
from sandboxes.base import SandboxError
from sandboxes.docker.daemon import ensure_daemon, stop_daemon
from sandboxes.docker.images import ensure_base_image

logger = logging.getLogger(__name__)

TRAINER = Path(__file__).parent / "trainer.py"

PRACTICE_TASKS, PRACTICE_SEED = 216, 7
"""How many tasks are made up to practise on, and from which seed."""

COLUMNS = (
    ("step", "step", "d"),
    ("reward", "reward", ".3f"),
    ("solved", "solved", ".0%"),
    ("parsed", "parsed", ".0%"),
    ("entropy", "entropy", ".3f"),
    ("ratio", "ratio", ".3f"),
    ("clip_fraction", "clipped", ".1%"),
    ("mismatch_fresh", "mismatch", ".1e"),
    ("lag", "lag", ".1f"),
    ("trained_tokens", "tokens", "d"),
    ("seconds/wait", "wait s", ".0f"),
    ("seconds/train", "train s", ".0f"),
    ("failures", "failures", "d"),
)
"""Figures of a step in the table: where they stand, heading, format."""


def main(argv: list[str]) -> int:
    """Returns 0 when the run reached its last step."""
    options = _parser().parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    run_dir: Path = options.run_dir or Path("runs") / f"learn-{options.rung}-{time.strftime('%Y%m%d-%H%M%S')}"
    options.run_dir = run_dir.resolve()
    options.run_dir.mkdir(parents=True, exist_ok=True)
    try:
        return asyncio.run(until_signalled(_learn(options)))
    except asyncio.CancelledError:
        print(f"interrupted; it goes on with --run-dir {options.run_dir}", file=sys.stderr)
        return 130
    except (PartError, SandboxError, OSError, ValueError) as error:
        print(f"learn: {error}", file=sys.stderr)
        return 1


async def _learn(options: argparse.Namespace) -> int:
    console, rung, run_dir = Console(), RUNGS[options.rung], options.run_dir
    config = _config(options, rung)
    async with AsyncExitStack() as stack:
        console.print("Docker engine and sandbox image …")
        stack.push_async_callback(stop_daemon, await ensure_daemon())
        await ensure_base_image()
        await asyncio.to_thread(_write_tasks, rung, run_dir / "tasks")
        parts = await stack.enter_async_context(Parts(run_dir, restarts=3))
        api = await parts.trainer_api()
        engine, model = await _engine(parts, rung, options, console)
        settings = _environment(rung, options, engine)
        await parts.environment({**settings, "env.rollout_server_url": api, "env.run_dir": run_dir / "environment"})
        curve = Curve(run_dir)
        for step in rung.milestones:
            await _train(parts, rung, options, console, curve, config, until=step, api=api, engine=engine, model=model)
            if step == rung.steps:
                await parts.end("environment")  # which would go on making groups while the last tasks are evaluated
            await _evaluate(parts, rung, settings, console, run_dir, step)
            curve.read()
            write_page(curve, run_dir / "learning.html", config)
    for name, value in findings(curve):
        console.print(f"{name:>24}  {value}", highlight=False)
    console.print(f"the curve: {run_dir / 'learning.html'}")
    return 0


async def _engine(parts: Parts, rung: Rung, options: argparse.Namespace, console: Console) -> tuple[str, str]:
    """Start the engine, or wait for the user's. Returns its address and the model's folder or name."""
    if rung.model is None or options.engine_url:
        if not (options.engine_url and options.model):
            raise ValueError("this rung needs an engine of yours: give --engine-url and --model (see docs/learning.md)")
        console.print(f"Waiting for the engine at {options.engine_url} …")
        await parts.alongside(answers(f"{options.engine_url.rstrip('/').removesuffix('/v1')}/health"))
        return options.engine_url, options.model
    # Imported here, as they bring PyTorch, which the user of another machine's engine need not have.
    from atropos_agent.cpu_engine.model import DEFAULT_CACHE, locate

    console.print(f"Embedded engine with {rung.model} …")
    if rung.model == "smoke":
        model = await asyncio.to_thread(smoke.model, DEFAULT_CACHE)
    else:
        model = await asyncio.to_thread(locate, rung.model)
    warm = ["--adapter", str(adapter())] if rung.adapter else []
    return await parts.engine(str(model), *warm, "--max-model-len", "2048"), str(model)


async def _train(
    parts: Parts,
    rung: Rung,
    options: argparse.Namespace,
    console: Console,
    curve: Curve,
    config: Mapping[str, Any],
    *,
    until: int,
    api: str,
    engine: str,
    model: str,
) -> None:
    """Train until the policy has taken `until` steps in all, showing how it goes."""
    arguments = [str(options.trainer), "--model", model, "--api", api, "--engine", engine]
    arguments += ["--out", str(options.run_dir / "trainer"), "--steps", str(until), "--seed", str(options.seed)]
    arguments += ["--batch-size", str(rung.batch_size), "--max-lag", str(rung.max_lag)]
    if rung.adapter:
        arguments += ["--lora", *(["--adapter", str(adapter())] if rung.model else [])]
    arguments += [word for name, value in rung.trainer.items() for word in (f"--{name}", str(value)) if word]
    await parts.start("trainer", *arguments)
    with _Table(console, curve, config) as table:
        await parts.alongside(table.until(parts.finished("trainer")))
    await parts.end("trainer")


async def _evaluate(
    parts: Parts, rung: Rung, settings: Mapping[str, object], console: Console, run_dir: Path, step: int
) -> None:
    """Attempt the held-out tasks with the weights of `step`, unless that was done before."""
    folder = run_dir / f"eval-{step:06}"
    if not any(folder.glob("eval-*.json")):
        console.print(f"Held-out tasks after step {step} …")
        own = {"env.run_dir": folder, "env.eval_samples": rung.eval_samples, "env.eval_temperature": 1.0}
        arguments = flags({**settings, **own})
        await parts.alongside(run(f"evaluate-{step}", run_dir, "-m", "envs.swe", "evaluate", *arguments))
    found = Evaluation.read(next(folder.glob("eval-*.json")), step)
    low, high = found.interval
    console.print(f"held-out tasks after step {step}: {found.mean:.0%} solved, 95% interval [{low:.0%}, {high:.0%}]")


def _environment(rung: Rung, options: argparse.Namespace, engine: str) -> dict[str, object]:
    """Options of the environment, in training and in evaluations."""
    made_up = options.run_dir / "tasks"
    tasks: dict[str, object] = {}
    if rung.tasks != "starter":
        tasks = {"env.tasks": made_up / "train"}
        tasks["env.eval_tasks"] = made_up / "held-out" if rung.tasks == "smoke" else STARTER
    return {
        **tasks,
        "openai.base_url": engine,
        "env.group_size": rung.group_size,
        "env.seed": options.seed,
        **rung.environment,
    }


def _write_tasks(rung: Rung, folder: Path) -> None:
    """The tasks of the run, made up where the rung wants such."""
    if rung.tasks == "starter" or folder.is_dir():
        return
    partial = folder.with_name("tasks.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if rung.tasks == "smoke":
        train, held_out = smoke.tasks()
        write_tasks(train, partial / "train")
        write_tasks(held_out, partial / "held-out")
    else:
        write_tasks(examples(PRACTICE_TASKS, PRACTICE_SEED), partial / "train")
    partial.rename(folder)


class _Table:
    """The last steps, live in a terminal, line by line elsewhere; the page is written beside."""

    def __init__(self, console: Console, curve: Curve, config: Mapping[str, Any]) -> None:
        self._console, self._curve, self._config = console, curve, config
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._shown = len(curve.steps)

    def __enter__(self) -> _Table:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    async def until(self, end: Any) -> None:
        """Follow the run until `end` is awaited."""
        ending = asyncio.ensure_future(end)
        try:
            while not ending.done():
                await asyncio.wait({ending}, timeout=1.0)
                await asyncio.to_thread(self._curve.read)
                if len(self._curve.steps) > self._shown:
                    await asyncio.to_thread(
                        write_page, self._curve, self._curve.run_dir / "learning.html", self._config
                    )
                    self._show()
        finally:
            ending.cancel()

    def _show(self) -> None:
        new, self._shown = self._curve.steps[self._shown :], len(self._curve.steps)
        if self._live is not None:
            table = Table(*(heading for _, heading, _ in COLUMNS))
            for line in self._curve.steps[-15:]:
                table.add_row(*_cells(line))
            self._live.update(table, refresh=True)
        for line in new if self._live is None else ():
            cells = zip((heading for _, heading, _ in COLUMNS), _cells(line), strict=True)
            self._console.print(
                "  ".join(f"{heading} {cell}" for heading, cell in cells), highlight=False, soft_wrap=True
            )


def _cells(line: Mapping[str, Any]) -> list[str]:
    cells = []
    for key, _, form in COLUMNS:
        outer, _, inner = key.partition("/")
        value = line.get(outer)
        value = value.get(inner) if inner and value else value
        cells.append("–" if value is None else format(value, form))
    return cells


def _config(options: argparse.Namespace, rung: Rung) -> dict[str, Any]:
    """What the run was, saved with it. Raises ValueError when the directory holds another run."""
    path = options.run_dir / "config.json"
    config: dict[str, Any] = {
        "rung": options.rung,
        "seed": options.seed,
        "model": options.model or rung.model,
        "steps": rung.steps,
        "group_size": rung.group_size,
        "groups": rung.groups,
        "environment": {name: str(value) for name, value in rung.environment.items()},
        "trainer": {name: str(value) for name, value in rung.trainer.items()},
        "evaluations": {"after steps": str(rung.milestones), "samples": rung.eval_samples, "temperature": 1.0},
    }
    if path.is_file():
        saved: dict[str, Any] = json.loads(path.read_text())
        if {name: saved.get(name) for name in config} != config:
            raise ValueError(f"{options.run_dir} holds a run with other settings; see its config.json")
        return saved
    packages = ("atropos-agent", "atroposlib", "torch", "transformers", "peft")
    config["versions"] = {"python": platform.python_version(), **{name: version(name) for name in packages}}
    config["machine"] = {"cpus": os.cpu_count(), "processor": _processor(), "system": platform.platform()}
    config["commit"] = _commit()
    path.write_text(json.dumps(config, indent=2))
    return config


def _processor() -> str:
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.is_file() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


def _commit() -> str:
    folder = Path(__file__).parent
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "not in a git checkout"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m envs.swe learn", description=__doc__)
    parser.add_argument("--rung", choices=sorted(RUNGS), default="smoke", help="size of the run (default: %(default)s)")
    parser.add_argument("--run-dir", type=Path, help="where it goes, or went before (default: a new one under runs/)")
    parser.add_argument("--engine-url", help="use the engine that answers here, and start none")
    parser.add_argument("--model", help="folder or hub name of the model that your engine serves")
    parser.add_argument("--trainer", type=Path, default=TRAINER, help="the trainer's file (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of task order and trainer (default: %(default)s)")
    return parser
