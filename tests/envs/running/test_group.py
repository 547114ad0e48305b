"""A group, from its task to what became of it."""

import pytest
from packets import PLACE, a_task, draw, packet

from envs.running.database import RunDirectoryError
from envs.running.group import Group, confirm, count_states, group_outcomes, unfinished_groups
from envs.running.journal import Journal
from envs.running.outbox import Outbox
from envs.types import GroupState, Reward, Rollout, Verdict


async def test_a_group_goes_from_its_task_to_its_confirmation(tmp_path):
    async with Journal(tmp_path) as journal:
        group, outbox = await draw(journal), Outbox(journal)
        await group.add(1, Rollout("r", group.task, None, Verdict(1.0, ""), Reward(0.5)), PLACE)
        (left,) = await unfinished_groups(journal)
        assert (left.number, left.task, left.members) == (0, "task-0", {1: PLACE})
        await outbox.add(group, [packet(group.number)], [])
        assert await count_states(journal) == {"outbox": 1}
        await outbox.confirm(await outbox.next_packet())
        assert await count_states(journal) == {"delivered": 1}
        assert await outbox.next_packet() is None
    (outcome,) = group_outcomes(tmp_path)
    assert (outcome.number, outcome.task, outcome.state, list(outcome.rewards)) == (0, "task-0", "delivered", [0.5])
    assert outcome.reason == "confirmed by the trainer API"


async def test_the_fates_of_groups_can_be_read_while_the_run_goes_on(tmp_path):
    with pytest.raises(RunDirectoryError, match="holds no run"):
        list(group_outcomes(tmp_path))
    async with Journal(tmp_path) as journal:
        first, second = await draw(journal), await draw(journal)
        await first.close(GroupState.EQUAL, "all rewards are 1")
        assert [outcome.reason for outcome in group_outcomes(tmp_path)] == [
            "all rewards are 1",
            "its rollouts are being made",
        ]
        assert [outcome.number for outcome in group_outcomes(tmp_path, [GroupState.WORKING])] == [second.number]
        assert [outcome.number for outcome in group_outcomes(tmp_path, task="task-0")] == [first.number]


async def test_a_confirmation_costs_the_same_however_many_groups_were_confirmed_before(tmp_path):
    async with Journal(tmp_path) as journal:

        async def taken(name):
            group = await Group.ask(journal, a_task(0).task, name, 1)
            await group.close(GroupState.TAKEN, "")

        async def steps(name):
            """Count what SQLite does for a confirmation, in hundreds."""
            await taken(name)
            counted = []
            await journal.read(lambda db: db.set_progress_handler(lambda: counted.append(name), 100))
            await confirm(journal, "run", [name])
            await journal.read(lambda db: db.set_progress_handler(None, 100))
            return len(counted)

        first = await steps("first")
        await journal.write(lambda db: db.executemany(*_many(3000)))
        assert await steps("last") <= first + 2


def _many(count):
    return "INSERT INTO groups (task, state) VALUES ('task', ?)", [(GroupState.CONFIRMED,)] * count
