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
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from anyio.from_thread import start_blocking_portal
from api_server import ApiServer
from claims_controller import ClaimsController
from e2b_server import KEY, TEMPLATE
from far_places import Authority, Hub, leads, secured, served
from hosted import Hosted
from on_server import serving
from own_sshd import Sshd, need_sshd
from programs import Program
from pytest_httpserver import HTTPServer
from scripted_engine import ScriptedEngine
from shown_runs import evaluated, indexed, make_run, rollout
from teacher_engine import TeacherEngine
from test_docs import COMMANDS
from test_swebench import ROW
from waiting import in_time

from atropos_agent.cpu_engine.model import locate
from envs.records.stats import summarise
from envs.swe import STARTER
from envs.tasks.adapters.sets import SETS
from envs.types import Seat
from sandboxes.docker.images.base_image import BASE_IMAGE

ROOT = Path(__file__).parents[1]
NOT_HERE = {
    "--preset laptop": "trains a warm start for half an hour first: by hand, README has its figure",
    "--config /etc/atropos/run.yaml": "in a pod of KubeRay's cluster: docs/pods.md says how it was run",
}
"""What commands can't be run here, by a part of them, and why."""
REFUSED = {
    "--preset gpu": "trains on a GPU, and PyTorch finds none here",
    "--trainer trl": "needs a GPU, and PyTorch finds none here"
    if find_spec("trl")
    else "--trainer trl is not installed",
}
"""What commands say that end at once on a machine without a GPU, by a part of them."""
GOES_ON = re.compile(r" (serve|process|evaluate|learn) ")
WORKS = '<tool_call>{"name": "terminal", "arguments": {"command": "ls"}}</tool_call>'
MOST_S = 900.0
"""Longest wait for the first rollout, in seconds: a learning run may make an adapter before."""
REGISTRATION = {
    **{"wandb_group": "", "wandb_project": "", "batch_size": 8, "max_token_len": 16384, "checkpoint_dir": ""},
    **{"save_checkpoint_interval": 0, "starting_step": 0, "num_steps": 100},
}

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.engine, pytest.mark.timeout(1500)]


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


def a_task(place: Path, image: str = "", *, judged: bool = False) -> None:
    """Write one task, in an image that is there or in one that is built for it; or one whose tests ask a model."""
    shutil.copytree(STARTER / "create-notes", place)
    toml = place / "task.toml"
    if image:
        shutil.rmtree(place / "environment")
        toml.write_text(f'{toml.read_text()}docker_image = "{image}"\nworkdir = "/app"\n')
    if judged:
        toml.write_text(toml.read_text().replace("[metadata]", "[metadata]\njudge = true"))


def evaluations(place: Path, *names: str, parts: int = 1) -> None:
    """Put evaluations that ended where pages name them, whole or as parts of one."""
    for number, name in enumerate(names, 1):
        also = [evaluated(f"e-{number}-{member}", member == number - 1, member=member) for member in range(2)]
        run_dir = asyncio.run(make_run(place / name, also=also))
        about = {"options": {"shard": f"{number}/{parts}"}, "samples": {"tasks": 1, "made": 2, "missing": 0}}
        found = summarise({f"add-numbers{number if parts > 1 else ''}": [1.0, 0.0]}).to_json() | {"about": about}
        (run_dir / "eval-0.json").write_bytes(orjson.dumps(found))


def a_hub(stack: ExitStack, place: Path) -> dict[str, str]:
    """A hub with a row of SWE-Gym's schema."""
    pandas = pytest.importorskip("pandas")
    rows = place / "hub/data/train-00000-of-00001.parquet"
    rows.parent.mkdir(parents=True)
    pandas.DataFrame([{**ROW, "repo": "owner/adder", "base_commit": "b8dbecb841", "version": "1"}]).to_parquet(rows)
    of = SETS["swe-gym"]
    port = stack.enter_context(served(Hub(of.place, of.revision, place / "hub").app))
    return {"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(place / "cache"), "HF_HUB_OFFLINE": "0"}


def hosts(stack: ExitStack, place: Path) -> dict[str, str]:
    """The page's file of hosts; `build@a` and `build@b` are this machine by ssh, 10.0.0.7 does not answer."""
    need_sshd()
    (place / "hosts.yaml").write_text(re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/hosts.md").read_text(), re.S)[0])
    (place / "certs/c").mkdir(parents=True)
    far = Authority(place / "certs/c", "host")
    for name, file in (("ca", far.certificate), ("cert", far.certificate), ("key", far.key)):
        shutil.copy(file, place / f"certs/c/{name}.pem")
    (place / "sshd").mkdir()
    sshd = stack.enter_context(Sshd(place / "sshd"))
    config = place / "sshd/ssh_config"
    config.write_text(config.read_text().replace("Host elsewhere", "Host a b"))
    (sshd.path / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {config} -o User=root "$@"\n')
    return {"PATH": str(sshd.path)}


def hosted(stack: ExitStack) -> int:
    """A model of each of three protocols. Returns its port."""
    server = stack.enter_context(HTTPServer(port=0))
    Hosted(server)
    return server.port


def far(stack: ExitStack, place: Path, host: str, port: int) -> dict[str, str]:
    """Answer `https://HOST` by what a port of this machine serves."""
    authority = Authority(place, host)
    return authority.environment | leads(place, {f"{host}:443": stack.enter_context(secured(authority, port))})


def running(stack: ExitStack, of: AbstractAsyncContextManager[Any]) -> Any:
    """Enter an asynchronous context in a loop of its own."""
    portal = stack.enter_context(start_blocking_portal())
    return stack.enter_context(portal.wrap_async_context_manager(of))


@asynccontextmanager
async def cluster(place: Path) -> AsyncIterator[ApiServer]:
    """An API server whose pods are containers, with a controller of claims."""
    async with ApiServer(place).serving() as server, ClaimsController(server).working():
        yield server


def agents_that_ran(_stack: ExitStack, place: Path) -> dict[str, str]:
    evaluations(place, "runs/pi", "runs/codex")
    return {}


def parts_that_ran(_stack: ExitStack, place: Path) -> dict[str, str]:
    evaluations(place, "runs/a", "runs/b", parts=2)
    return {}


def an_endpoint(stack: ExitStack, place: Path) -> dict[str, str]:
    return far(stack, place, "api.anthropic.com", hosted(stack))


def another_machine(_stack: ExitStack, place: Path) -> dict[str, str]:
    return leads(place, {"10.0.0.5:9001": 9001})


def a_task_in_doubt(_stack: ExitStack, place: Path) -> dict[str, str]:
    a_task(place / "tasks/ID")
    return {}


def a_judge(stack: ExitStack, place: Path) -> dict[str, str]:
    a_task(place / "DIR/notes", judged=True)
    return {"JUDGE_KEY": "k", **leads(place, {"judge:8000": hosted(stack)})}


def a_cluster(stack: ExitStack, place: Path) -> dict[str, str]:
    a_task(place / "tasks/notes", BASE_IMAGE)
    return {"KUBECONFIG": str(running(stack, cluster(place)).kubeconfig)}


def an_e2b_server(stack: ExitStack, place: Path) -> dict[str, str]:
    a_task(place / "tasks/notes", TEMPLATE)
    server = running(stack, serving())
    return {"E2B_API_KEY": KEY, **far(stack, place, "*.e2b.app", int(server.url.rpartition(":")[2]))}


def an_allocation(stack: ExitStack, place: Path) -> dict[str, str]:
    """The head of a Ray cluster, and the variables of the job's script."""
    (place / "run.yaml").write_text("env: {}\n")
    ray = str(Path(sys.executable).with_name("ray"))
    start = ["start", "--head", "--node-ip-address=127.0.0.1", "--port=6379", "--include-dashboard=false"]
    subprocess.run([ray, *start], check=True, cwd=place)
    stack.callback(subprocess.run, [ray, "stop", "--force"], check=True)
    return {"project": str(place), "address": "127.0.0.1"}


ELSEWHERE = {
    "swe agents": agents_that_ran,
    "swe join": parts_that_ran,
    "tasks get": a_hub,
    "--only ID": a_task_in_doubt,
    "--env.tags ID": a_task_in_doubt,
    "--env.hosts": hosts,
    "api.anthropic.com": an_endpoint,
    "10.0.0.5": another_machine,
    "--env.judge": a_judge,
    "--env.sandbox kubernetes": a_cluster,
    "--env.sandbox e2b": an_e2b_server,
    "--env.ray.address": an_allocation,
}
"""What a page has on other machines, or has done before, by a part of its command: each returns the environment that
leads there."""


@contextmanager
def beside(command: str, tokenizer, place: Path) -> Iterator[dict[str, str]]:
    """Start what a command wants to find: inference servers, a teacher, the trainer API with a trainer.

    Yields the environment that leads to what is elsewhere."""
    with ExitStack() as stack:
        puts_up = next((found for part, found in ELSEWHERE.items() if part in command), None)
        environment = puts_up(stack, place) if puts_up else {}
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
        if "teacher=http" in command:  # of the policy's own tokens
            model = subprocess.check_output([sys.executable, "-m", "envs.lab.models", "smoke"], text=True).strip()
            words = ["-m", "atropos_agent.cpu_engine", "--model", model, "--port", "9002", "--max-model-len", "2048"]
            teacher = Program(words, stdout=place / "teacher.log")
            stack.callback(teacher.kill)
            assert in_time(lambda: (place / "teacher.log").exists() and "Ready:" in (place / "teacher.log").read_text())
        if " serve" in command:
            api = Program(["-m", "atroposlib.cli.run_api", "--port", "8000"], stdout=place / "api.log")
            stack.callback(api.kill)
            assert in_time(_registered)
        yield environment


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
    refusal = next((said for part, said in REFUSED.items() if part in command), "")
    if "--env.workers ray" in command:
        pytest.importorskip("ray", reason="ray is not installed")
    if " view " in command:
        with_runs(place)
    log = place / "said.log"
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
    with beside(f"{command} ", smollm2_tokenizer, place) as more, log.open("wb") as said:
        env |= {**more, "PATH": f"{more.get('PATH', place)}:{env['PATH']}"}
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
    assert status in ((2,) if refusal else (0, 130)), log.read_text()
    assert refusal in log.read_text()
    assert "Traceback" not in log.read_text()


def _works(command: str, place: Path, said: str) -> bool:
    """Tell whether a command that goes on has done enough."""
    if GOES_ON.search(f"{command} "):
        return any(file.stat().st_size for file in place.rglob("rollouts.jsonl"))
    return " view runs/" in command and _answers(said)


def _answers(said: str) -> bool:
    address = re.search(r"http://\S+", said)
    return address is not None and httpx.get(address[0], timeout=10, follow_redirects=True).is_success
