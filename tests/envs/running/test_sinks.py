"""What becomes of complete groups."""

import pytest
from scripted_engine import ScriptedEngine
from sums import right

from envs.delivery.packing import RowPacker
from envs.running.commands import CountPace
from envs.running.group import count_states
from envs.running.outbox import Outbox
from envs.running.run import open_run
from envs.running.sinks import TrainerSink


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(right, smollm2_tokenizer) as engine:
        yield engine


async def test_groups_with_equal_rewards_are_made_anew_twice_where_that_is_wanted(engine, make_env):
    env = make_env(group_size=2, equal_rewards="resample")
    async with open_run(env) as run:
        sink = TrainerSink(run, Outbox(run.journal), RowPacker(2), None)
        group = await run.next_group()
        for again in (1, 2):
            await run.work(group, CountPace(run, 1), sink)
            group = await run.queue.next()
            assert (group.number, group.resampled, group.members) == (0, again, {})
        await run.work(group, CountPace(run, 1), sink)
        assert await count_states(run.journal) == {"equal": 1}
    assert env.attempts.total() == 6
