"""A shell of this machine that lives from command to command; what it promises is tested in test_sessions.py."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from waiting import until

from sandboxes.base import SandboxDied
from sandboxes.local.session import LocalSession

MARKER = "ATROPOS_TEST_SESSION=local"


@pytest.fixture
async def session(tmp_path):
    (tmp_path / "start").mkdir()
    session = LocalSession(tmp_path / "own", tmp_path / "start", {"PATH": "/bin:/usr/bin"}, MARKER)
    yield session
    await session.close()


async def test_its_own_directory_may_be_removed(session, tmp_path):
    assert (await session.run("x=5; pwd")).output == f"{tmp_path}/start\n"
    shutil.rmtree(tmp_path / "own")
    assert (await session.run("echo $x")).output == "5\n"


async def test_a_new_shell_starts_also_where_the_first_directory_is_gone(session, tmp_path):
    await session.run("cd ..; x=5; rmdir start")
    assert (await session.run("exit 3")).shell_ended
    assert (await session.run("echo $x; pwd")).output.endswith(f"5\n{tmp_path}\n")


async def test_a_full_pipe_to_its_shell_holds_nobody_up(session, tmp_path):
    await session.run("x=5")
    stat = Path("/proc", (await session.run("(sleep 0.1; kill -STOP $$) & echo $$")).output.strip(), "stat")
    await until(lambda: stat.read_text().rpartition(") ")[2].startswith("T"))
    pipe = os.open(tmp_path / "own/control", os.O_RDWR | os.O_NONBLOCK)  # the shell may not have it open just now
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x")
    assert ((done := await session.run("true")).exit_code, done.shell_ended) == (137, True)
    os.close(pipe)
    assert (await session.run("echo $x")).output == "5\n"


async def test_what_is_said_of_another_command_means_nothing(session):
    said = await session.run("echo 'ended 0123456789abcdef 0' >&11; echo 'ended 0' >&11; sleep 0.2; echo late")
    assert said.output.endswith("late\n")
    assert (await session.run("echo next")).output == "next\n"


async def test_its_marker_is_in_what_it_starts(session):
    assert (await session.run("env | grep ^ATROPOS")).output == f"{MARKER}\n"


async def test_a_closed_one_says_so(session):
    await session.close()
    with pytest.raises(SandboxDied, match="closed"):
        await session.run("true")


async def test_nul_characters_are_refused(session):
    with pytest.raises(ValueError, match="NUL"):
        await session.run("a\0b")
