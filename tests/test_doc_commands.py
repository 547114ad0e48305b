"""Each command in a block of README and docs runs as it stands, beside what its page says is there.

The ports are those of the pages: 8000, 8900, 9001 and 9002 have to be free. A command that goes on is interrupted
once it has a rollout, or its page answers.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from programs import Program
from scripted_engine import ScriptedEngine
from shown_runs import evaluated, indexed, make_run, rollout
from teacher_engine import TeacherEngine
from test_docs import COMMANDS
from waiting import in_time

from atropos_agent.cpu_engine.model import locate
from envs.types import Seat

ROOT = Path(__file__).parents[1]
NOT_HERE = {
    "atropos-agent evaluate": "in an image, beside another machine's inference server",
    "--openai.server_type": "asks a hosted model",
    "--preset laptop": "takes an hour",
    "--preset gpu": "wants a GPU",
    "--trainer trl": "wants a GPU",
    "--env.sandbox kubernetes": "wants a cluster: docs/pods.md says how it was run",
    "--env.sandbox e2b": "wants an E2B server",
    "--env.hosts": "wants other machines: tests/sandboxes/fleet",
    "--env.judge": "wants a judge's machine: tests/envs/swe/test_judges.py",
    "--env.ray.address": "wants Slurm",
    "swe agents": "wants evaluations that ended: tests/envs/agents/test_table.py",
    "swe join": "wants evaluations in parts: tests/envs/swe/test_shards.py",
    "tasks get": "wants a model hub",
    "teacher=http": "wants a learning run's teacher",
}
"""What commands can't be run here, by a part of them, and why."""
GOES_ON = re.compile(r" (serve|process|evaluate|learn) ")
WORKS = '<tool_call>{"name": "terminal", "arguments": {"command": "ls"}}</tool_call>'
MOST_S = 480.0
"""Longest wait for the first rollout, in seconds: a learning run may make an adapter before."""
REGISTRATION = {
    **{"wandb_group": "", "wandb_project": "", "batch_size": 8, "max_token_len": 16384, "checkpoint_dir": ""},
    **{"save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 100},
}

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.engine, pytest.mark.timeout(900)]


def works(prompt: str) -> str:
    """Look around once, and end."""
    return "It is done." if "tool_response" in prompt or "<tool_call>" not in prompt else WORKS


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the programs that pages speak of."""
    (tmp_path / "products.py").write_text(re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[0])
    shutil.copy(ROOT / "examples/function.py", tmp_path)
    return tmp_path


def with_runs(place: Path) -> None:
    """Put a run where pages name one."""
    shown = asyncio.run(make_run(place / "RUN", also=[evaluated("e-0", True), rollout("late", seat=Seat(step=12))]))
    indexed(shown)
    shutil.copytree(shown, place / "runs/swe-20260101-120000")


@contextmanager
def beside(command: str, tokenizer, place: Path) -> Iterator[None]:
    """Start what a command wants to find: inference servers, a teacher, the trainer API with a trainer."""
    with ExitStack() as stack:
        if "doctor" in command:  # it looks at logprobs: they have to be a model's
            log = place / "engine.log"
            engine = Program(["-m", "atropos_agent.cpu_engine", "--port", "9001"], stdout=log)
            stack.callback(engine.kill)
            assert in_time(lambda: log.exists() and "Ready:" in log.read_text())
        elif " learn" not in command:
            ports = re.findall(r"base_url http://localhost:(\d+)", command) or ["9001"]
            for port in map(int, ports):
                stack.enter_context(ScriptedEngine(works, tokenizer, root=str(locate("tiny")), port=port))
        if "--env.teacher" in command:
            stack.enter_context(TeacherEngine(tokenizer, root=str(locate("tiny")), port=9002))
        if " serve" in command:
            api = Program(["-m", "atroposlib.cli.run_api", "--port", "8000"], stdout=place / "api.log")
            stack.callback(api.kill)
            assert in_time(_registered)
        yield


def _registered() -> bool:
    """Be a trainer that asks for its first batch."""
    try:
        registered = httpx.post("http://localhost:8000/register", json=REGISTRATION, timeout=5)
        return registered.is_success and httpx.get("http://localhost:8000/batch", timeout=5).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("command", [pytest.param(one, id=" ".join(one.split())) for one in COMMANDS])
def test_a_command_works(command, place, smollm2_tokenizer):
    if why := next((why for part, why in NOT_HERE.items() if part in command), ""):
        pytest.skip(why)
    if "--env.workers ray" in command:
        pytest.importorskip("ray", reason="ray is not installed")
    if " view " in command:
        with_runs(place)
    log = place / "said.log"
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    with beside(f"{command} ", smollm2_tokenizer, place), log.open("wb") as said:
        program = subprocess.Popen(
            ["bash", "-c", f"exec {command}"], cwd=place, stdout=said, stderr=said, env=env, start_new_session=True
        )
        try:
            deadline = time.monotonic() + MOST_S
            while program.poll() is None and not _works(command, place, log.read_text()):
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGINT)
            status = program.wait(120)
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
    assert status in (0, 130), log.read_text()
    assert "Traceback" not in log.read_text()


def _works(command: str, place: Path, said: str) -> bool:
    """Tell whether a command that goes on has done enough."""
    if GOES_ON.search(f"{command} "):
        return any(file.stat().st_size for file in place.rglob("rollouts.jsonl"))
    return " view runs/" in command and _answers(said)


def _answers(said: str) -> bool:
    address = re.search(r"http://\S+", said)
    return address is not None and httpx.get(address[0], timeout=10, follow_redirects=True).is_success
