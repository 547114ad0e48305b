"""The command `learn`: the parts of a learning run, started and kept running, and its curve."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console

from atropos_agent.engines.http import client_of
from envs.agents.naming import find_foreign_agent
from envs.lab.curve import Curve, Evaluation
from envs.lab.dashboard import Dashboard, Steps
from envs.lab.given import merge_settings, uses_daemon
from envs.lab.kinds import EASY
from envs.lab.parsers import GIVEN, WITHIN, learn_parser
from envs.lab.parts import (
    PartError,
    Parts,
    format_flags,
    missing_packages,
    output_of,
    run,
    run_until_signal,
    wait_until_healthy,
)
from envs.lab.plots import list_findings, write_page
from envs.lab.practice import write_tasks
from envs.lab.presets import PRESETS, Preset
from envs.lab.recipes import RECIPES, adapter
from envs.lab.synthetic import Example, examples
from envs.messages import SWE, describe_error, replace_command
from envs.records.disk import NoFolder, make_folder, replace_file
from envs.records.provenance import commit, machine, versions
from envs.running.database import RunDirectoryError, lock_directory
from envs.running.proxies import bypass_proxies_for_loopback
from envs.runs.reader import holds_run
from envs.swe import STARTER
from envs.swe.config import SWEEnvConfig
from envs.trainers.weights import (
    POLICY,
    PolicyServer,
    VLLMServer,
    WeightsRefusedError,
    hand_over,
    keep_current,
    policy_server,
)
from sandboxes.base import SandboxError
from sandboxes.docker.daemon.startup import ensure_daemon, stop_daemon
from sandboxes.docker.images.base_image import ensure_base_image
from sandboxes.installing import install
from sandboxes.log import set_up_log
from sandboxes.naming import lazy_import

PRACTICE_TASKS, PRACTICE_SEED = 216, 7
"""Number of made-up tasks to practise on, and their seed."""

MADE_UP = {name: lazy_import(f"envs.lab.{name}:tasks") for name in ("smoke", "windows")}
"""Tasks to train on and to evaluate on, each in a world of its own."""

MADE_FOR = {"trl": "1.16"}
"""Their versions."""

ON_A_GPU = {"trl"}
"""Trainers that start on a GPU alone."""

HELD_OUT_SEED = 2_000_003
"""Seed of the made-up tasks to be held out."""


def main(argv: list[str]) -> int:
    """Run to the preset's last step. Return the exit status."""
    options = learn_parser().parse_args(argv)
    if (wrong := _find_conflict(options)) is not None:
        learn_parser().error(wrong)
    set_up_log()
    bypass_proxies_for_loopback()
    try:
        usual = Path("runs") / f"learn-{options.preset}-{time.strftime('%Y%m%d-%H%M%S')}"
        options.run_dir = make_folder(options.run_dir, usual, "--run-dir").resolve()
        if holds_run(options.run_dir):
            raise NoFolder(f"{options.run_dir} holds a run of another command; give another --run-dir")
        with lock_directory(options.run_dir, "--run-dir"):
            return asyncio.run(run_until_signal(_learn(options)))
    except asyncio.CancelledError:
        print(f"interrupted; continue it with --run-dir {options.run_dir}", file=sys.stderr)
        return 130
    except (NoFolder, RunDirectoryError) as error:
        learn_parser().error(str(error))
    except (PartError, WeightsRefusedError, SandboxError, OSError, ValueError) as error:
        print(f"learn: {describe_error(error)}", file=sys.stderr)
        return 1


def _find_conflict(options: argparse.Namespace) -> str | None:
    """Return the contradiction in the options, and the remedy; None without one."""
    if options.engine_url and not options.model:
        return "--engine-url: give --model too, the folder or hub name of the model that it serves"
    if options.evaluations == 1:
        return "--evaluations 1: one is before and one after training; give 2 or more"
    if options.model and not options.engine_url:
        return "--model says what a server of yours serves: give --engine-url too, or leave it out"
    if (wrong := _trainer_conflict(options.trainer, options.preset) if options.trainer in WITHIN else None) is not None:
        return wrong
    return _preset_conflict(options.preset, bool(options.engine_url))


def _preset_conflict(name: str, served: bool) -> str | None:
    """Return what keeps a preset from this machine, and the remedy. served: by an inference server of the user's."""
    preset = PRESETS[name]
    if preset.model is None and not served:
        return f"preset {name} needs an inference server of yours: give --engine-url and --model"
    if (wrong := missing_packages("learn", smollm2=preset.model == "smollm2" and not served)) is not None:
        return wrong
    if preset.trainer.get("device") == "cuda" and not import_module("torch").cuda.is_available():
        return f"--preset {name} trains on a GPU, and PyTorch finds none here: take smoke or laptop"
    return None


def _trainer_conflict(name: str, preset: str) -> str | None:
    """Return what keeps a trainer with an environment of its own from this machine or preset, and the remedy."""
    remedy = install(name)
    if find_spec(name) is None:
        return f"--trainer {name} is not installed: {remedy}"
    if not (found := version(name)).startswith(f"{MADE_FOR[name]}."):
        return f"--trainer {name} is made for {MADE_FOR[name]}, and {found} is installed: {remedy}"
    if PRESETS[preset].model is None:
        server = f"the embedded inference server alone, and preset {preset} has a server of yours"
        return f"--trainer {name} gives weights to {server}: take smoke or laptop"
    if name in ON_A_GPU and not import_module("torch").cuda.is_available():
        return (
            f"--trainer {name} needs a GPU, and PyTorch finds none here: leave it out, and a trainer of ours learns on "
            "this CPU; in a clone, `python tests/envs/trainers/trl_on_cpu.py learn` runs TRL on it"
        )
    return None


async def _learn(options: argparse.Namespace) -> int:
    console, preset, run_dir = Console(), _select_preset(options), options.run_dir
    config = _check_run_facts(options, preset)
    async with AsyncExitStack() as stack:
        if uses_daemon(options.env):
            console.print("Docker daemon and sandbox image …")
            stack.push_async_callback(stop_daemon, await ensure_daemon())
            await ensure_base_image()
        await asyncio.to_thread(_write_tasks, preset, run_dir / "tasks")
        warm = await _warm_start_options(preset, options, console)
        parts = await stack.enter_async_context(Parts(run_dir, restarts=3))
        engine, model = await _start_engine(parts, preset, options, warm, console)
        url = engine.rstrip("/").removesuffix("/v1")
        http = await stack.enter_async_context(client_of(url, timeout=300.0))
        server = await policy_server(http)
        if isinstance(server, VLLMServer):
            preset = replace(preset, adapter=True, environment={**preset.environment, "openai.model_name": POLICY})
        settings = _environment_options(preset, options, engine)
        if options.engine_url:
            settings["env.tokenizer_name"] = model
        curve = Curve(run_dir)
        own: dict[str, object] = {"env.run_dir": run_dir / "environment"}
        trainer = [*_trainer_arguments(preset, options, warm), "--model", model, "--engine", engine]
        if within := options.trainer in WITHIN:
            trainer += format_flags({**settings, **own})
        else:
            api = await parts.trainer_api()
            own["env.rollout_server_url"] = api
            trainer += ["--api", api]
        for step in preset.milestones:
            if step or not within:
                await parts.start("trainer", *trainer, "--steps", str(step))
                with Dashboard(console, title=f"learn {options.preset}", interval_s=0.0) as dashboard:
                    await parts.alongside(
                        _show_steps(parts.finished("trainer"), curve, config, dashboard, preset.steps)
                    )
                await parts.end("trainer")
            if step == 0 and not within:  # the inference server has the policy now
                await parts.environment({**settings, **own})
            if step == preset.steps and not within:
                await parts.end("environment")  # which would go on making groups while the last tasks are evaluated
            async with await _keep_current(parts, server, run_dir / "trainer", step):
                await _evaluate(parts, preset, settings, console, run_dir, step)
            curve.read()
            write_page(curve, run_dir / "learning.html", config)
    for name, value in list_findings(curve):
        console.print(f"{name:>24}  {value}", highlight=False)
    console.print(f"the curve: {run_dir / 'learning.html'}", soft_wrap=True)
    page = f"every rollout and evaluation in a browser: {replace_command(SWE)} view {run_dir}"
    console.print(page, highlight=False, soft_wrap=True)
    return 0


def _select_preset(options: argparse.Namespace) -> Preset:
    """Return the preset with the given options in place of its own. Raises ValueError for an agent it can't learn
    through."""
    preset = PRESETS[options.preset].for_agent(options.agent)
    given = {name: getattr(options, name) for name in GIVEN}
    return replace(preset, **{name: value for name, value in given.items() if value is not None})


def _foreign_agent(options: argparse.Namespace) -> str:
    """Return the name of the agent at work on the tasks, "" for one with our own agent's knowledge."""
    return "" if find_foreign_agent(options.agent) is None else str(options.agent)


async def _warm_start_options(preset: Preset, options: argparse.Namespace, console: Console) -> list[str]:
    """Return the inference server's and the trainer's options for the first adapter."""
    if options.adapter is None and not (preset.adapter and preset.model):
        return []
    console.print("Warm start of the model …")
    agent = _foreign_agent(options)
    return ["--adapter", str(await adapter("few" if agent else "full", given=options.adapter, agent=agent))]


async def _start_engine(
    parts: Parts, preset: Preset, options: argparse.Namespace, warm: Sequence[str], console: Console
) -> tuple[str, str]:
    """Start the inference server, or wait for the user's. Return its address and the model's folder or name."""
    if preset.model is None or options.engine_url:
        console.print(f"Waiting for the inference server at {options.engine_url} …")
        await parts.alongside(wait_until_healthy(options.engine_url))
        return options.engine_url, options.model
    console.print(f"Embedded inference server with {preset.model} …")
    agent = _foreign_agent(options)
    model = await output_of("model", "-m", "envs.lab.models", preset.model, *(["--agent", agent] if agent else []))
    window = preset.environment["env.max_token_length"]
    engine = await parts.engine(model, *warm, "--max-model-len", str(window))
    await parts.alongside(wait_until_healthy(engine))
    return engine, model


def _trainer_arguments(preset: Preset, options: argparse.Namespace, warm: Sequence[str]) -> list[str]:
    """Return the trainer's arguments, but for those known only when the other parts run."""
    program = WITHIN.get(options.trainer) or ([str(options.trainer)] if options.trainer else ["-m", "envs.lab.trainer"])
    given = [word for name, value in preset.trainer.items() for word in (f"--{name}", str(value)) if word]
    return [
        *program,
        *("--out", str(options.run_dir / "trainer")),
        *("--seed", str(options.seed)),
        *("--batch-size", str(preset.batch_size)),
        *("--max-lag", str(preset.max_lag)),
        *(["--lora", *warm] if preset.adapter or warm else []),
        *given,
    ]


async def _show_steps(
    end: Coroutine[None, None, None], curve: Curve, config: Mapping[str, Any], dashboard: Dashboard, steps: int
) -> None:
    """Show each new step of `steps`, and write the page again, until `end` is awaited."""
    ending, shown = asyncio.ensure_future(end), len(curve.steps)
    try:
        while not ending.done():
            await asyncio.wait({ending}, timeout=1.0)
            await asyncio.to_thread(curve.read)
            if len(curve.steps) > shown:
                await asyncio.to_thread(write_page, curve, curve.run_dir / "learning.html", config)
            for number in range(shown, len(curve.steps)):
                dashboard.update(Steps(curve.steps[: number + 1], steps))
            shown = len(curve.steps)
    finally:
        ending.cancel()


async def _evaluate(
    parts: Parts, preset: Preset, settings: Mapping[str, object], console: Console, run_dir: Path, step: int
) -> None:
    """Attempt the held-out tasks with the weights of `step`, unless done before."""
    folder = run_dir / f"eval-{step:06}"
    if not any(folder.glob("eval-*.json")):
        console.print(f"Held-out tasks after step {step} …")
        usual = {"env.eval_samples": preset.eval_samples, "env.eval_temperature": 1.0}
        left_out = {f"env.{name}" for name in SWEEnvConfig.for_training}
        kept = {name: value for name, value in settings.items() if name not in left_out}
        arguments = format_flags({**usual, **kept, "env.run_dir": folder})
        await parts.alongside(run(f"evaluate-{step}", run_dir, "-m", "envs.swe", "evaluate", *arguments))
    written = next(folder.glob("eval-*.json"))
    found = Evaluation.read(written, step)
    if not found.rates:
        written.unlink()
        raise PartError(
            f"no rollout of the evaluation after step {step} could be judged; {run_dir / f'evaluate-{step}.log'} "
            f"says why. It is made again with --run-dir {run_dir}"
        )
    console.print(f"held-out tasks after step {step}: solved {found}", highlight=False, markup=False)


async def _keep_current(parts: Parts, server: PolicyServer, out: Path, step: int) -> AbstractAsyncContextManager[None]:
    """Wait until the inference server has the weights of `step`, and keep it there, if the trainer writes checkpoints
    for it. Raises PartError for those of another step, and WeightsRefusedError."""
    folder = await asyncio.to_thread(lambda: max(out.glob("step-*"), default=None))
    if folder is None:
        return nullcontext()
    version = int(folder.name.removeprefix("step-"))
    if version != step:
        raise PartError(f"the trainer's last weights are {folder}, and those of step {step} were to be evaluated")
    await parts.alongside(hand_over(server, folder, version))  # a server that is new has its first weights
    return keep_current(server, folder, version)


def _environment_options(preset: Preset, options: argparse.Namespace, engine: str) -> dict[str, object]:
    """Return the options of the environment, in training and in evaluations."""
    made_up = options.run_dir / "tasks"
    tasks: dict[str, object] = {}
    if preset.tasks != "starter":
        tasks = {"env.tasks": made_up / "train"}
        tasks["env.eval_tasks"] = made_up / "held-out" if preset.tasks in MADE_UP or preset.held_out else STARTER
    return {
        **tasks,
        "openai.base_url": engine,
        "env.group_size": preset.group_size,
        "env.seed": options.seed,
        **preset.environment,
        **merge_settings(options.env),
    }


def _write_tasks(preset: Preset, folder: Path) -> None:
    """Write the tasks of the run, made up if the preset wants such."""
    if preset.tasks == "starter" or folder.is_dir():
        return
    partial = folder.with_name("tasks.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if preset.tasks in MADE_UP:
        for part, chosen in zip(("train", "held-out"), MADE_UP[preset.tasks]()(), strict=True):
            for example in chosen:  # all make the same file
                write_tasks([example], partial / part)
    else:
        write_tasks(examples(PRACTICE_TASKS, PRACTICE_SEED), partial / "train")
        for surplus in write_tasks(_unseen_tasks(2 * preset.held_out), partial / "held-out")[preset.held_out :]:
            shutil.rmtree(surplus)
    partial.rename(folder)


def _unseen_tasks(count: int) -> list[Example]:
    """Return at most `count` made-up tasks of easy kinds, neither practised nor in a warm start, none twice."""
    seen = [*examples(PRACTICE_TASKS, PRACTICE_SEED)]
    for recipe in RECIPES.values():
        seen += examples(recipe.examples, recipe.seed, recipe.kinds)
    instructions, done = {task.instruction for task in seen}, {task.command for task in seen}
    unseen = []
    for task in examples(count, HELD_OUT_SEED, EASY):
        if task.instruction not in instructions and task.command not in done:
            unseen.append(task)
            instructions.add(task.instruction)
            done.add(task.command)
    return unseen


def _check_run_facts(options: argparse.Namespace, preset: Preset) -> dict[str, Any]:
    """Return the run's own facts, saved with it. Raises ValueError when the directory holds another run."""
    path = options.run_dir / "config.json"
    config: dict[str, Any] = {
        "preset": options.preset,
        "seed": options.seed,
        "model": options.model or preset.model,
        "steps": preset.steps,
        "group_size": preset.group_size,
        "groups": preset.groups,
        "environment": {name: str(value) for name, value in preset.environment.items()},
        "trainer": {name: str(value) for name, value in preset.trainer.items()},
        "evaluations": {"after steps": str(preset.milestones), "samples": preset.eval_samples, "temperature": 1.0},
        "trained by": str(options.trainer or ""),
        "adapter": str(options.adapter.resolve()) if options.adapter else "",
    }
    if path.is_file():
        try:
            saved: dict[str, Any] = json.loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(
                f"{path} can't be read ({error}); bring it back from a copy, or give another --run-dir for a new run"
            ) from error
        if "rung" in saved:  # as runs of 0.1 call it
            saved["preset"] = saved.pop("rung")
        # Runs of 0.2 say neither their trainer's name nor the adapter.
        if other := [name for name, value in config.items() if saved.get(name, value) != value]:
            changes = "; ".join(f"{name} {saved[name]!r}, now {config[name]!r}" for name in other)
            raise ValueError(
                f"{path} holds a run with other settings ({changes}): give those, or another --run-dir for a new run"
            )
        return saved
    config["versions"] = {**versions(), "peft": version("peft")}
    config["machine"] = machine()
    config["commit"] = commit() or "not in a git checkout"
    replace_file(path, json.dumps(config, indent=2).encode())
    return config
