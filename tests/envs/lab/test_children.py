"""Programs that were started here end with this process, whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import in_time

from envs.lab.children import STOP_S, start_child
from sandboxes.owner import process_start

GRANDCHILDREN = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {inner!r}]); time.sleep(600)"
WRITES_ITS_PID = "import os, sys, time; open({path!r}, 'a').write(f'{{os.getpid()}}\\n'); time.sleep(600)"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "

PARENT = """
import asyncio, sys
from pathlib import Path
from envs.lab.parts import Parts, output_of, run, run_until_signal

async def main():
    async with Parts(Path(sys.argv[1])) as parts:
        await parts.start("part", "-c", sys.argv[2])
        await asyncio.gather(
            run("ran", Path(sys.argv[1]), "-c", sys.argv[2]), output_of("said", "-c", sys.argv[2])
        )
    return 0

asyncio.run(run_until_signal(main()))
"""


def living(pids: list[int]) -> list[int]:
    return [pid for pid in pids if process_start(pid)]


def pids_in(path: Path, count: int) -> list[int]:
    assert in_time(lambda: path.exists() and path.read_text().count("\n") >= count)
    return [int(line) for line in path.read_text().split()]


@pytest.mark.parametrize("deaf", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["", "deaf to SIGTERM"])
@pytest.mark.parametrize("ways", [[signal.SIGKILL], [signal.SIGTERM, signal.SIGTERM], [signal.SIGINT]])
def test_when_their_parent_dies_programs_and_what_they_started_end(
    tmp_path: Path, ways: list[signal.Signals], deaf: bool
) -> None:
    own = (IGNORES_SIGTERM if deaf else "") + WRITES_ITS_PID.format(path=str(tmp_path / "pids"))
    program = own.replace("time.sleep(600)", GRANDCHILDREN.format(inner=own))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), program], start_new_session=True)
    pids = pids_in(tmp_path / "pids", 6)
    assert len(living(pids)) == 6
    for way in ways:
        parent.send_signal(way)
        time.sleep(0.3)
    parent.wait(120)
    assert in_time(lambda: not living(pids))


def test_the_second_signal_ends_a_process_whose_programs_do_not_heed_the_first(tmp_path: Path) -> None:
    program = IGNORES_SIGTERM + WRITES_ITS_PID.format(path=str(tmp_path / "pids"))
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), program], start_new_session=True)
    pids = pids_in(tmp_path / "pids", 3)
    parent.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        parent.wait(1)
    parent.send_signal(signal.SIGTERM)
    try:
        assert parent.wait(STOP_S / 2) == 130
    finally:
        for pid in living(pids):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


async def test_a_program_that_is_stopped_takes_with_it_what_it_started(tmp_path: Path) -> None:
    inner = WRITES_ITS_PID.format(path=str(tmp_path / "pids"))
    devnull = asyncio.subprocess.DEVNULL
    child = await start_child(["-c", GRANDCHILDREN.format(inner=inner)], stdout=devnull, stderr=None, env=os.environ)
    (pid,) = await asyncio.to_thread(pids_in, tmp_path / "pids", 1)
    await child.stop()
    assert await asyncio.to_thread(in_time, lambda: not living([pid, child.pid]))
