"""The command that tells what became of a run's groups, and why."""

import pytest

from envs.running.group import Group
from envs.running.groups import main
from envs.running.journal import Journal
from envs.tasks.sampler import Draw
from envs.types import GroupState, Task


@pytest.fixture
async def run_dir(tmp_path):
    async with Journal(tmp_path) as journal:
        for number, (state, reason, evidence) in enumerate(
            [
                (GroupState.DELIVERED, "confirmed by the trainer API", ""),
                (GroupState.EQUAL, "all rewards are 0", ""),
                (GroupState.STALE, "it is 17 steps old", "aside/stale-3.json.gz"),
            ]
        ):
            group = await Group.draw(journal, lambda n, number=number: Draw(Task(f"task-[{number}]", "")))
            await group.close(state, reason, evidence)
    return tmp_path


async def test_each_group_has_its_state_its_reason_and_the_place_of_the_evidence(run_dir, capsys):
    assert main([str(run_dir)]) == 0
    shown = capsys.readouterr().out
    for words in ("task-[0]", "all rewards are 0", "it is 17 steps old", "aside/stale-3.json.gz"):
        assert words in shown
    assert "3 groups, 1 delivered, 1 equal, 1 stale" in shown


async def test_groups_are_chosen_by_state_and_by_task(run_dir, capsys):
    main([str(run_dir), "--state", "stale", "--state", "equal", "--task", "task-[2]"])
    shown = capsys.readouterr().out
    assert "1 group, 1 stale" in shown
    assert "task-[1]" not in shown


async def test_a_directory_without_a_run_is_refused(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "holds no run" in capsys.readouterr().err
