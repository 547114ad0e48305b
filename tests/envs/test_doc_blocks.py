"""Each block of code in README and docs runs as it stands, in the surroundings that its page describes."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import shutil
import signal
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from asking import ask
from embedded_engine import engine as embedded
from openai import AsyncOpenAI
from programs import run as run_program
from sums import Sums, right

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from atropos_agent.gateway import Gateway
from envs.agents.facts import ForeignAgent
from envs.checking.check import check_tasks
from envs.functions import Hooks, Prompt, rollout
from envs.functions.running import run
from envs.lab import smoke
from envs.lab.practice import write_tasks
from envs.options.reading import read_options
from envs.runs import open_run
from envs.swe.environment import SWEEnv, SWEEnvConfig
from envs.tasks.harbor import load_tasks
from envs.tasks.task_toml import parse_config
from envs.types import Task
from sandboxes.base import Limits, PtySize, SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.fleet.host import read_hosts
from tools import ToolError, ToolRegistry
from tools.mcp.servers import parse_servers, read_servers

ROOT = Path(__file__).parents[2]
LANGUAGES = ("python", "json", "yaml", "toml", "shell")
ELSEWHERE = {
    "README.md: import sys": "tests/test_examples.py",
    "docs/trainers.md: import asyncio": "tests/envs/trainers/test_tinker.py",
    "docs/trainers.md: import tinker": "tests/envs/trainers/test_tinker.py",
    "docs/trainers.md: - name: atropos": "tests/envs/trainers/verl_steps.py",
}
"""Blocks that other tests run."""
RUN: set[str] = set()


def blocks() -> dict[str, str]:
    """Every block by its page and first line of code."""
    found = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for language, code in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            if language in LANGUAGES:
                found[f"{page.relative_to(ROOT)}: {code.splitlines()[0]}"] = code
    return found


def of(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a test the block of this name as `code`."""
    RUN.add(name)
    (code,) = [code for found, code in blocks().items() if found.startswith(name)]
    return pytest.mark.parametrize("code", [code], ids=[name])


async def names_after(code: str, **names: Any) -> dict[str, Any]:
    """Run a block, in which `await` may stand outside of functions."""
    compiled = compile(code, "<block>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if inspect.isawaitable(pending := eval(compiled, names)):
        await pending
    return names


def test_each_block_is_run_here_or_elsewhere():
    known = {*RUN, *ELSEWHERE}
    assert [name for name in blocks() if not any(name.startswith(one) for one in known)] == []
    assert [one for one in known if not any(name.startswith(one) for name in blocks())] == []
    assert all((ROOT / path).is_file() for path in ELSEWHERE.values())


@of("docs/agents.md: from envs.agents.facts")
async def test_an_agent_of_ones_own_is_complete(code):
    assert isinstance((await names_after(code))["AGENT"], ForeignAgent)


@of("docs/asking.md: from envs.runs")
async def test_a_run_is_asked(code, run_dir, tmp_path, monkeypatch, capsys):
    shutil.copytree(run_dir, tmp_path / "runs/swe-20260101-120000")
    monkeypatch.chdir(tmp_path)
    await names_after(code.replace('"fix-the-parser", step="5-9", most=0.5', '"sort-lines"'))
    assert capsys.readouterr().out.startswith("r-3-0 0.5 ")


@of("docs/asking.md: run.resources")
async def test_a_running_run_is_given_a_new_text(code, run_dir, tmp_path):
    folder = shutil.copytree(run_dir, tmp_path / "run")
    with open_run(folder) as opened:
        await names_after(code, run=opened)
    assert (folder / "resources/system_prompt.txt").read_text() == "Answer with the number alone."


@of("docs/extending.md: async def attempt")
def test_a_user_who_speaks_is_the_example(code):
    lines = [line.strip() for line in (ROOT / "examples/user.py").read_text().splitlines()]
    assert [line.strip() for line in code.splitlines() if "def attempt" not in line] == [
        line for line in lines if line in code and "def attempt" not in line and line
    ]


@of("docs/extending.md: def careful")
def test_a_reward_is_the_example(code):
    assert code in (ROOT / "examples/reward.py").read_text()


@of("docs/extending.md: async def weather")
async def test_a_tool_has_a_schema_and_answers_the_model(code):
    tools = ToolRegistry([(await names_after(code, ToolError=ToolError))["weather"]])
    (schema,) = tools.schemas
    assert schema["function"]["parameters"]["properties"]["days"]["description"] == "the number of days ahead."
    assert await tools.answer("weather", '{"city": "Oslo"}') == "Oslo: rain"
    assert "at most 7 days" in await tools.answer("weather", '{"city": "Oslo", "days": 8}')


@of("docs/functions.md: @rollout(tasks=TASKS")
async def test_a_function_takes_a_prompt_and_hooks(code):
    class Log(Hooks):
        pass

    names = await names_after(code, rollout=rollout, Prompt=Prompt, Log=Log, TASKS=["a"])
    assert names["answers"].environment.name == "answers"


@of("docs/functions.md: rollouts = await run")
async def test_a_function_runs_without_a_trainer(code, engine, tokenizer_folder, tmp_path):
    async def answers(task: Task, llm: Any) -> float:
        return float(bool(await ask(llm, task.instruction)))

    engine.policy = lambda prompt: "four"

    async def here(*given: Any, **options: Any) -> Any:
        return await run(*given, **{**options, "tokenizer_name": tokenizer_folder, "run_dir": tmp_path / "run"})

    names = await names_after(
        code.replace("http://localhost:9001/v1", engine.url), run=here, answers=answers, tasks=["a"]
    )
    assert (names["rollouts"].mean_reward, len(names["rollouts"])) == (1.0, 4)


@of("docs/gateway.md: async with Gateway")
async def test_a_session_of_the_gateway_ends_with_a_result(code, make_env):
    env = make_env()
    names: dict[str, Any] = {"route": env.servers[0], "template": env.template, "tool_format": env.tool_format}
    asked = 'await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "What is 2 + 2?"}])'
    code = code.replace("...", asked).replace("result()", "result(); await client.close()")
    try:
        names = await names_after(code, Gateway=Gateway, AsyncOpenAI=AsyncOpenAI, config=None, **names)
    finally:
        await env.servers[0].close()
    assert names["result"].num_steps == 1


@of("docs/hosted.md: openai")
def test_azures_address_and_key_are_read_from_a_file(code, tmp_path):
    (tmp_path / "run.yaml").write_text(code)
    (server,) = read_options(SWEEnvConfig, ["--config", str(tmp_path / "run.yaml")]).openai
    assert server.base_url.endswith("?api-version=2024-10-21")
    assert server.headers == {"Api-Key": "KEY"}


@of("docs/options.md: env: {tasks")
def test_options_are_read_from_a_file(code, tmp_path):
    (tmp_path / "run.yaml").write_text(code)
    options = read_options(SWEEnvConfig, ["--config", str(tmp_path / "run.yaml"), "--env.tags", "terminal"])
    assert (options.env.group_size, options.env.tags, options.openai[0].api_key) == (16, ["terminal"], "KEY")


@of("docs/options.md: class Patient")
async def test_a_removed_option_lives_in_a_subclass(code):
    env_cls = (await names_after(code, SWEEnv=SWEEnv, SWEEnvConfig=SWEEnvConfig))["MyEnv"]
    assert read_options(env_cls.env_config_cls, []).env.overtime_s == 7200


@of("docs/tasks.md: [metadata]")
def test_a_task_names_its_limits(code):
    config = parse_config(code, "task.toml")
    assert (config.environment.memory_mb, config.environment.allowed_hosts) == (512, ["pypi.org"])
    assert not [*config.ignored_fields()]


@pytest.mark.docker
@of("docs/tasks.md: #!/bin/bash")
async def test_a_script_of_tests_rewards_the_reference_alone(code, docker_backend, base_image, tmp_path):
    files = {
        "task.toml": "",
        "instruction.md": "Correct `double`.",
        "environment/Dockerfile": f"FROM {base_image}\nWORKDIR /app\nCOPY stats.py .\n",
        "environment/stats.py": "def double(x):\n    return x\n",
        "tests/test.sh": code,
        "tests/test_stats.py": "from stats import double\n\n\ndef test_double():\n    assert double(2) == 4\n",
        "solution/solve.sh": "sed -i 's/return x/return 2 * x/' stats.py\n",
    }
    for name, text in files.items():
        path = tmp_path / "double" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (result,) = await check_tasks(docker_backend, load_tasks(tmp_path))
    assert (result.problem, result.watched) == (None, True)


@of("docs/trainers.md: from envs.running.feed")
async def test_a_run_is_a_library(code, engine, make_env):
    class Parsers(Sums):
        @classmethod
        def load_tasks(cls, config):
            return [Task("fix-the-parser", "What is 3 + 3?")], []

        async def attempt(self, task, seat):
            return await super().attempt(replace(task, id="sum-3"), seat)

    engine.policy = right
    assert len((await names_after(code, env=make_env(Parsers)))["group"].rollouts) == 8


ON_A_CPU = """
from trl_on_cpu import patch
patch()
from trl.experimental import async_grpo
config = async_grpo.AsyncGRPOConfig
small = {"max_steps": 2, "use_cpu": True, "bf16": False, "dataloader_pin_memory": False, "report_to": "none"}
async_grpo.AsyncGRPOConfig = lambda *given, **options: config(*given, **options | small)
"""
"""What stands before TRL's block where there is no GPU."""


@pytest.mark.docker
@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
@of("docs/trainers.md: from pathlib import Path")
async def test_trl_trains_in_one_process_with_the_environment(code, base_image, tmp_path, monkeypatch):
    """Of the block, the address, the tasks and the budgets are others: the model of the tests solves one kind alone."""
    pytest.importorskip("trl", reason="trl is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/mine").symlink_to(await asyncio.to_thread(smoke.model, DEFAULT_CACHE))
    for example in smoke.tasks()[0]:  # all make the same file
        write_tasks([example], Path("easy"))
    async with embedded("models/mine", 2048) as url:
        small = 'tasks="easy", tools=["terminal", "submit"], max_steps=2, max_reply_tokens=48, max_token_length=2048'
        here = {"http://localhost:9001": url, 'tasks="starter"': small}
        for given, own in here.items():
            assert given in code
            code = code.replace(given, own)
        ends = "print('steps', trainer.state.global_step, worker.version)\n"
        (tmp_path / "block.py").write_text(ON_A_CPU + code + ends)
        told = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests/envs/trainers")])}
        ended = await asyncio.to_thread(run_program, ["block.py"], env=told, timeout=800)
    assert ended.stdout.splitlines()[-1:] == ["steps 2 2"], ended.stderr[-3000:]


@pytest.mark.docker
@of("docs/sandboxes.md: async with DockerBackend")
async def test_a_sandbox_is_opened_forked_and_reset(code, docker_backend):
    names = await names_after(code, DockerBackend=DockerBackend, SandboxSpec=SandboxSpec, Limits=Limits)
    assert names["result"].exit_code != 0, "there is nothing to make"


@pytest.mark.docker
@of("docs/sandboxes.md: async with box.start")
async def test_a_command_is_followed(code, docker_backend, base_image):
    async with docker_backend.open(SandboxSpec(base_image)) as box:
        names = await names_after(code, box=box, signal=signal, PtySize=PtySize)
    assert names["piece"] and not names["result"].timed_out


@pytest.mark.docker
@of("docs/sandboxes.md: from sandboxes.sync")
async def test_a_sandbox_is_used_without_async(code, docker_backend, base_image, capsys):
    await names_after(code, DockerBackend=DockerBackend, SandboxSpec=SandboxSpec, image=base_image)
    assert capsys.readouterr().out.strip()


@of("docs/hosts.md: # hosts.yaml")
def test_hosts_are_read(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hosts.yaml").write_text(code)
    Path("certs/c").mkdir(parents=True)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        Path("certs/c", name).touch()
    assert [host.capacity for host in read_hosts("hosts.yaml")] == [None, None, 40]


@of("docs/mcp.md: [[environment.mcp_servers]]")
def test_a_task_names_its_servers(code):
    (server,) = parse_servers(tomllib.loads(code)["environment"]["mcp_servers"], str, of_task=True)
    assert server.command == ("python3", "/srv/notes.py")


@of('docs/mcp.md: {"mcpServers"')
def test_a_run_names_its_servers(code, tmp_path):
    (tmp_path / "servers.json").write_text(code)
    servers = read_servers(tmp_path / "servers.json", {"SEARCH_KEY": "k"})
    assert [server.name for server in servers] == [*json.loads(code)["mcpServers"]]


@of("docs/options.md: [project.entry-points")
def test_a_package_offers_its_parts(code):
    assert set(tomllib.loads(code)["project"]["entry-points"]) == {"atropos_agent.tools"}
