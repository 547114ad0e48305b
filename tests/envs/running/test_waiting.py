"""At the start, what is not there is waited for; what is wrong is told at once."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from sums import Sums, fill

from envs.running import waiting
from envs.running.run import open_run
from envs.running.waiting import retry_until_reachable
from envs.types import BadTask
from sandboxes.base import DaemonError, DaemonUnavailable, ImageMissing, SandboxTimeout


@pytest.fixture(autouse=True)
def pauses(monkeypatch):
    """Pauses take no time."""
    taken = []

    async def pause(seconds):
        taken.append(seconds)

    monkeypatch.setattr(waiting, "asyncio", SimpleNamespace(sleep=pause))
    return taken


class Away:
    """Fails, each time as it is told, then is there."""

    def __init__(self, *errors):
        self.errors = list(errors)

    async def __call__(self):
        if self.errors:
            raise self.errors.pop(0)
        return "there"


async def test_a_daemon_that_is_not_there_yet_is_waited_for_and_its_remedy_is_told(pauses, caplog):
    refused = DaemonUnavailable("Connection refused. Start Docker.")
    away = Away(refused, DaemonError("starting"), SandboxTimeout("slow"), ConnectionResetError())
    assert await retry_until_reachable(away) == "there"
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert [record.message for record in caplog.records] == [
        "Connection refused. Start Docker. Waiting for it, up to 30 minutes"
    ]


@pytest.mark.parametrize("wrong", [BadTask("no task"), ImageMissing("no image"), ValueError("odd")])
async def test_what_is_wrong_is_told_at_once(pauses, wrong):
    with pytest.raises(type(wrong)):
        await retry_until_reachable(Away(wrong))
    assert not pauses


async def test_patience_ends_with_the_remedy(monkeypatch):
    monkeypatch.setattr(waiting, "PATIENCE_S", 0.5)
    with pytest.raises(DaemonUnavailable, match="Start Docker"):
        await retry_until_reachable(Away(DaemonUnavailable("Start Docker.")))


async def test_a_run_is_set_up_when_the_daemon_is_there_and_what_was_open_before_is_closed(make_env):
    opened = []

    class Late(Sums):
        async def setup(self, resources):
            @asynccontextmanager
            async def part():
                opened.append(True)
                try:
                    yield
                finally:
                    opened.append(False)

            await resources.enter_async_context(part())
            if len(opened) < 3:
                raise DaemonUnavailable("Start Docker.")
            await super().setup(resources)

    async with open_run(make_env(cls=Late)) as run:
        assert opened == [True, False, True], "the first try left nothing open"
        await fill(run)
    assert opened == [True, False, True, False]
