"""Commands of this machine that are followed; `test_sandbox_process.py` has what those in containers share."""

import os
from pathlib import Path

import pytest

from sandboxes.base import PtySize
from sandboxes.local.process import LocalProcess

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def process(name="x", **options):
    usual = {"timeout": 20.0, "stdin": False, "pty": None, "split": False, "max_output": 100}
    return LocalProcess(f"ATROPOS_TEST={name}", **usual | options)


def descriptors() -> set[str]:
    return {fd.name for fd in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("options", [{}, {"stdin": True}, {"split": True}, {"pty": PtySize()}])
@pytest.mark.parametrize("argv", [["echo", "hi"], ["no-such-program"]])
async def test_no_descriptor_is_left_open(tmp_path, options, argv):
    before = descriptors()
    running = process(**options)
    await running.begin(argv, ENVIRONMENT, tmp_path)
    await running.wait()
    await running.close()
    running.stop_reading()
    assert descriptors() == before


async def test_what_it_leaves_in_the_background_may_print_until_nobody_reads(tmp_path):
    running = process("background")
    script = "(trap '' PIPE; while echo tick; do sleep 0.05; done; echo over >over) & sleep 0.1"
    await running.begin(["sh", "-c", script], ENVIRONMENT, tmp_path)
    await running.wait()
    await running.close()
    assert running.is_open
    running.stop_reading()
    waiting = process("waits")
    await waiting.begin(["sh", "-c", "until test -e over; do sleep 0.05; done"], ENVIRONMENT, tmp_path)
    assert (await waiting.wait()).exit_code == 0
    await waiting.close()
