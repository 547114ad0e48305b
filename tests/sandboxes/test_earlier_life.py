"""Nothing of what was left in a sandbox is there after a reset, whoever has left it."""

from dataclasses import replace

import pytest
from earlier_life import LEFT

from sandboxes.base import Limits


@pytest.fixture
async def opened(kind, spec, make_backend):
    """A sandbox of a backend that isolates: what is left in it would be left on this machine."""
    if kind == "local":
        pytest.skip("nothing is isolated there")
    async with await make_backend(kind) as backend, backend.open(replace(spec, limits=Limits(pids=128))) as box:
        yield box


async def found(box, names=tuple(LEFT)):
    return {name: (await box.exec(LEFT[name][1], user="root")).output for name in names}


@pytest.mark.long(20)
@pytest.mark.timeout(300)
async def test_what_is_left_is_gone_after_a_reset(opened):
    at_the_start = await found(opened)
    for name, (leave, _) in LEFT.items():
        await opened.exec(leave, user="root", timeout=5)
        await opened.reset()
        assert await found(opened, [name]) == {name: at_the_start[name]}
    assert await found(opened) == at_the_start


@pytest.mark.long(10)
@pytest.mark.timeout(300)
async def test_all_that_is_left_at_once_is_gone_after_a_reset(opened):
    at_the_start = await found(opened)
    for leave, _ in LEFT.values():
        await opened.exec(leave, user="root", timeout=5)
    await opened.reset()
    assert await found(opened) == at_the_start
