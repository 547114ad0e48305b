"""The command `demo`: the whole loop, with a stand-in for the trainer that checks every row."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from envs.lab.consumer import Consumer, ConsumerError
from envs.lab.dashboard import Dashboard, Preparation, Progress, View
from envs.lab.given import merge_settings, uses_daemon
from envs.lab.parsers import demo_parser
from envs.lab.parts import (
    PartError,
    Parts,
    missing_packages,
    run_until_signal,
    wait_until_answering,
    wait_until_healthy,
)
from envs.lab.recipes import adapter
from envs.lab.synthetic import TOOLS
from envs.messages import SWE, describe_error, replace_command
from envs.records.disk import NoFolder, make_folder
from envs.records.metrics import Metrics
from envs.running.proxies import bypass_proxies_for_loopback
from sandboxes.base import SandboxError
from sandboxes.docker.daemon.startup import ensure_daemon, stop_daemon
from sandboxes.docker.images.base_image import ensure_base_image
from sandboxes.log import set_up_log
from sandboxes.shielding import run_concurrently


def main(argv: list[str]) -> int:
    """Run the demo. Return 0 when every row of every batch was sound."""
    options = demo_parser().parse_args(argv)
    wrong = None if options.engine_url else missing_packages("demo", smollm2=options.model == "smollm2")
    if wrong is not None:
        demo_parser().error(f"{wrong}; or give --engine-url, the address of an inference server of yours")
    set_up_log()
    bypass_proxies_for_loopback()
    try:
        usual = Path("runs") / f"demo-{time.strftime('%Y%m%d-%H%M%S')}"
        options.run_dir = make_folder(options.run_dir, usual, "--run-dir")
        if (options.run_dir / "config.json").exists():
            raise NoFolder(f"{options.run_dir} holds a learning run; give another --run-dir")
        return asyncio.run(run_until_signal(_demo(options)))
    except asyncio.CancelledError:
        print("interrupted; everything was stopped", file=sys.stderr)
        return 130
    except NoFolder as error:
        demo_parser().error(str(error))
    except (PartError, SandboxError, ConsumerError, OSError) as error:
        print(f"demo: {describe_error(error)}", file=sys.stderr)
        return 1


async def _demo(options: argparse.Namespace) -> int:
    console = Console()
    started = time.monotonic()
    run_dir: Path = options.run_dir
    # The Docker daemon is stopped after the parts, which have containers.
    async with AsyncExitStack() as daemon, Parts(run_dir) as parts:
        api = await _start_parts(parts, daemon, options, console)
        ready = time.monotonic()
        async with Consumer(api, batch_size=2 * options.group_size, name="demo") as consumer:
            await parts.alongside(_pull_batches(consumer, options, console, ready))
    statistics = consumer.statistics
    metrics = _read_metrics(run_dir / "metrics.json") or Metrics()
    console.print(
        f"\n{statistics.groups} groups of {options.group_size} in {statistics.batches} batches, "
        f"{statistics.groups_with_signal} with differing rewards, {statistics.rows} rows checked, "
        f"{statistics.groups_with_problems} groups with problems; mean reward {statistics.score_mean or 0:.2f}, "
        f"{sum(metrics.failures.values())} infrastructure failures\n"
        f"set-up {ready - started:.0f} s, run {time.monotonic() - ready:.0f} s\n"
        f"every rollout, token by token: {run_dir / 'rollouts.html'}\n"
        f"in a browser: {replace_command(SWE)} view {run_dir}",
        soft_wrap=True,
    )
    for problem in statistics.problems:
        console.print(f"  {problem}", markup=False)
    return 1 if statistics.groups_with_problems or statistics.groups < options.groups else 0


async def _start_parts(parts: Parts, daemon: AsyncExitStack, options: argparse.Namespace, console: Console) -> str:
    """Start everything, independent parts side by side, and show the progress. Return the trainer API's address."""
    begun, log = time.monotonic(), options.run_dir / "warmstart.log"
    daemons = ["Docker daemon and sandbox image"] if uses_daemon(options.env) else []
    states = dict.fromkeys((*daemons, "warm start", "trainer API"), "…")

    def preparation() -> Preparation:
        now = dict(states)
        if now["warm start"] == "…" and log.is_file():
            now["warm start"] = (log.read_text(encoding="utf-8", errors="replace").splitlines() or ["…"])[
                -1
            ].removeprefix("warm start: ")
        return Preparation(time.monotonic() - begun, now)

    async def track(name: str, work: Coroutine[Any, Any, Any]) -> Any:
        states[name] = "…"
        result = await work
        states[name] = "ready"
        return result

    async with _show_dashboard(console, preparation):
        warm, api, *_ = await run_concurrently(
            [
                track("warm start", _warm_start_options(options, log)),
                track("trainer API", parts.trainer_api()),
                *(track(name, _prepare_sandboxes(daemon)) for name in daemons),
            ]
        )
        if options.engine_url:
            engine, server = options.engine_url, wait_until_answering(f"{options.engine_url}/models")
        else:
            engine = await parts.engine(options.model, *warm)
            server = wait_until_healthy(engine)
        # It waits for the inference server, too.
        await parts.environment(_environment_settings(options, api, engine))
        await track("inference server", parts.alongside(server))
    return str(api)


async def _prepare_sandboxes(daemon: AsyncExitStack) -> None:
    """See to a Docker daemon (one of ours is stopped when the stack closes) and the sandbox image."""
    daemon.push_async_callback(stop_daemon, await ensure_daemon())
    await ensure_base_image()


async def _warm_start_options(options: argparse.Namespace, log: Path) -> list[str]:
    """Return the options for the small model's adapter, made if missing."""
    if options.engine_url or (options.model != "smollm2" and options.adapter is None):
        return []
    return ["--adapter", str(await adapter("quick", given=options.adapter, log=log))]


async def _pull_batches(consumer: Consumer, options: argparse.Namespace, console: Console, started: float) -> None:
    """Pull batches until all requested groups are here, and show the progress."""

    def progress() -> Progress:
        return Progress.of(
            _read_metrics(options.run_dir / "metrics.json"),
            consumer.statistics,
            elapsed_s=time.monotonic() - started,
            target=options.groups,
        )

    async with _show_dashboard(console, progress) as dashboard:
        async for _ in consumer.batches():
            if consumer.statistics.groups >= options.groups:
                break
    dashboard.save_svg(options.run_dir / "demo.svg")


@asynccontextmanager
async def _show_dashboard(console: Console, view: Callable[[], View]) -> AsyncIterator[Dashboard]:
    """Show a changing view while the block is open."""
    with Dashboard(console, title="atropos-agent demo") as dashboard:

        async def show() -> None:
            while True:
                dashboard.update(view())
                await asyncio.sleep(1.0)

        showing = asyncio.create_task(show())
        try:
            yield dashboard
        finally:
            showing.cancel()
            dashboard.update(view())


def _environment_settings(options: argparse.Namespace, api: str, engine: str) -> dict[str, object]:
    """Return options of the environment for a small model on a small machine."""
    return {
        "env.rollout_server_url": api,
        "openai.base_url": engine,
        "env.run_dir": options.run_dir,
        "env.tags": options.tags,
        "env.group_size": options.group_size,
        "env.tools": ",".join(TOOLS),
        "env.max_num_workers": 4,
        "env.max_concurrent_rollouts": 8,
        "env.max_steps": 3,
        "env.max_reply_tokens": 128,
        # The small model is sure of itself; a little more heat shows groups that differ.
        "env.temperature": 1.3,
        "env.max_token_length": 2048,
        # The demo shows every group, also those from which nothing could be learnt.
        "env.ensure_scores_are_not_same": "false",
        **merge_settings(options.env),
    }


def _read_metrics(path: Path) -> Metrics | None:
    try:
        return Metrics.from_json(path.read_bytes())
    except FileNotFoundError:
        return None
