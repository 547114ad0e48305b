"""A group, from its task to what became of it."""

import pytest
from packets import PLACE, draw, packet

from envs.running.database import RunDirectoryError
from envs.running.group import count_states, fates, unfinished
from envs.running.journal import Journal
from envs.running.outbox import Outbox
from envs.types import GroupState, Reward, Rollout, Verdict


async def test_a_group_goes_from_its_task_to_its_confirmation(tmp_path):
    async with Journal(tmp_path) as journal:
        group, outbox = await draw(journal), Outbox(journal)
        await group.add(1, Rollout("r", group.task, None, Verdict(1.0, ""), Reward(0.5)), PLACE)
        (left,) = await unfinished(journal)
        assert (left.number, left.task, left.members) == (0, "task-0", {1: PLACE})
        await outbox.add(group, [packet(group.number)], [])
        assert await count_states(journal) == {"outbox": 1}
        await outbox.confirm(await outbox.next_ready())
        assert await count_states(journal) == {"delivered": 1}
        assert await outbox.next_ready() is None
    (fate,) = fates(tmp_path)
    assert (fate.number, fate.task, fate.state, list(fate.rewards)) == (0, "task-0", "delivered", [0.5])
    assert fate.reason == "confirmed by the trainer API"


async def test_the_fates_of_groups_can_be_read_while_the_run_goes_on(tmp_path):
    with pytest.raises(RunDirectoryError, match="holds no run"):
        list(fates(tmp_path))
    async with Journal(tmp_path) as journal:
        first, second = await draw(journal), await draw(journal)
        await first.close(GroupState.EQUAL, "all rewards are 1")
        assert [fate.reason for fate in fates(tmp_path)] == ["all rewards are 1", "its rollouts are being made"]
        assert [fate.number for fate in fates(tmp_path, [GroupState.WORKING])] == [second.number]
        assert [fate.number for fate in fates(tmp_path, task="task-0")] == [first.number]
