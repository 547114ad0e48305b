"""Programs of this machine start with no signal ignored, whoever started us."""

import signal
from contextlib import contextmanager

import pytest

from sandboxes.base import PtySize, SandboxSpec
from sandboxes.local import LocalBackend

LOOK = "grep SigIgn /proc/self/status"


@contextmanager
def ignored(*numbers):
    before = [(number, signal.signal(number, signal.SIG_IGN)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


@pytest.fixture
async def box():
    async with LocalBackend() as backend, backend.open(SandboxSpec(image="")) as sandbox:
        yield sandbox


async def by_exec(box):
    return (await box.exec(LOOK)).output


async def by_a_session(box):
    return (await (await box.session()).run(LOOK)).output


async def by_a_process(box):
    async with box.start(LOOK) as process:
        return (await process.wait()).output


async def by_a_terminal(box):
    async with box.start(LOOK, pty=PtySize()) as process:
        return (await process.wait()).output


@pytest.mark.parametrize("ask", [by_exec, by_a_session, by_a_process, by_a_terminal])
async def test_what_we_ignore_a_command_does_not(box, ask):
    with ignored(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        said = await ask(box)
    assert int(said.split()[1], 16) & ~(3 << 31) == 0, "but for two of the C library's own"


async def test_an_interrupt_ends_a_command_of_a_run_in_the_background(box):
    with ignored(signal.SIGINT):
        ran = await box.exec("sh -c 'kill -INT $$; echo alive'")
    assert (ran.exit_code, ran.output) == (130, "")
