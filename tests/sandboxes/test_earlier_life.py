"""Nothing of what was left in a sandbox is there after a reset, or in its siblings, whoever has left it."""

from dataclasses import replace

import pytest
from earlier_life import LEFT
from turns import turn

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


@pytest.mark.timeout(300)
async def test_what_is_left_is_gone_after_a_reset(kind, opened, pytestconfig):
    at_the_start = await found(opened)
    # Where a reset makes another container, a share is enough, by turns.
    shares = 4 if kind == "docker" and pytestconfig.option.markexpr else 1
    for name, (leave, _) in [*LEFT.items()][turn(shares) :: shares]:
        await opened.exec(leave, user="root", timeout=5)
        await opened.reset()
        assert await found(opened, [name]) == {name: at_the_start[name]}
    assert await found(opened) == at_the_start


@pytest.mark.timeout(300)
async def test_all_that_is_left_at_once_is_gone_after_a_reset(opened):
    at_the_start = await found(opened)
    for leave, _ in LEFT.values():
        await opened.exec(leave, user="root", timeout=5)
    await opened.reset()
    assert await found(opened) == at_the_start


@pytest.mark.timeout(300)
async def test_siblings_see_nothing_of_what_comes_after_the_fork(opened, pytestconfig):
    await opened.write_file("/srv/shared", b"before")
    async with opened.fork(2) as (one, other):
        boxes = {"the forked one": opened, "a fork": one, "another fork": other}
        at_the_start = {name: await found(box) for name, box in boxes.items()}
        assert at_the_start["a fork"] == at_the_start["another fork"]
        # The forks are alike: one of them is enough, by turns.
        quiet = ("a fork", "another fork")[turn(2)] if pytestconfig.option.markexpr else ""
        for name, maker in boxes.items():
            if name == quiet:
                continue
            for leave, _ in LEFT.values():
                await maker.exec(leave, user="root", timeout=5)
            for sibling, box in boxes.items():
                if box is not maker:
                    assert await found(box) == at_the_start[sibling], f"of {name}'s in {sibling}"
            await maker.reset()
            assert await found(maker) == at_the_start[name], f"of its own in {name} as it is made again"
        assert await one.read_file("/srv/shared") == await other.read_file("/srv/shared") == b"before"
