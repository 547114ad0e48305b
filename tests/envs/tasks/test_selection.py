"""Which tasks a run uses."""

import json
import sys

import pytest

from envs.tasks.selection import keep_sound, keep_useful, load_checked, select_tagged, shard, solved_shares, split
from envs.types import BadTask, Task

TASKS = [Task(f"task-{number}", "Do it.", tags=("even",) if number % 2 == 0 else ("odd",)) for number in range(40)]


def ids(tasks):
    return [task.id for task in tasks]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (lambda config: TASKS, r"it returned \[Task\(.*; return two lists of tasks"),
        (lambda config: TASKS[:2], "return two lists of tasks"),
        (lambda config: None, "it returned None"),
        (lambda config: (["a"], []), "one of its tasks is 'a'"),
        (lambda config: (TASKS + TASKS[:1], []), "1 id of several tasks, such as 'task-0'; give each its own"),
        (lambda config: {}["gone"], r"raised KeyError: 'gone' \(.*test_selection\.py, line \d+\)"),
        (lambda config: sys.exit(3), "raised SystemExit: 3"),
    ],
)
def test_what_an_environment_loads_is_checked(found, said):
    with pytest.raises(BadTask, match=f"{'' if 'several' in said else 'lambda.*'}{said}"):
        load_checked(found, None)
    train, evaluate = load_checked(lambda config: (iter(TASKS), TASKS[:1]), None)
    assert (train, evaluate) == (TASKS, TASKS[:1])


def test_tags_choose_and_leave_out():
    assert ids(select_tagged(TASKS, ["even"], "--env.tags")) == [f"task-{number}" for number in range(0, 40, 2)]
    assert ids(select_tagged(TASKS, [], "--env.tags", without=["even"])) == [
        f"task-{number}" for number in range(1, 40, 2)
    ]
    with pytest.raises(
        BadTask, match=r"no task has one of the tags none \(--env.tags\); there are even, odd, and task ids"
    ):
        select_tagged(TASKS, ["none"], "--env.tags")
    many = [Task(f"task-{number}", "Do it.", tags=(f"tag-{number:03}",)) for number in range(100)]
    with pytest.raises(BadTask, match=r"there are tag-000, .*, tag-039 and 60 others, and task ids"):
        select_tagged(many, ["none"], "--env.tags")


def test_a_tasks_id_chooses_it_as_its_tags_do(caplog):
    assert ids(select_tagged(TASKS, ["task-3", "even"], "--only", without=["task-2"]))[:3] == [
        "task-0",
        "task-3",
        "task-4",
    ]
    assert not caplog.text
    assert ids(select_tagged(TASKS, ["task-3", "evne"], "--only")) == ["task-3"]
    assert "--only: no task has the tag or the id evne" in caplog.text


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 40])
def test_shards_do_not_overlap_and_are_all_tasks_together(parts):
    found = [ids(shard(TASKS, f"{number}/{parts}", seed=3)) for number in range(1, parts + 1)]
    assert sorted(one for part in found for one in part) == sorted(ids(TASKS))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("part", ["0/2", "3/2", "1", "a/b", "-1/2", "1/2/3", "41/41", "²/4"])
def test_a_shard_that_does_not_exist_is_refused(part):
    with pytest.raises(BadTask, match=r"--env\.shard"):
        shard(TASKS, part, seed=0)


def test_a_split_holds_the_same_tasks_out_when_others_come_to_them():
    kept, held = split(TASKS, 0.25, seed=1)
    assert not set(ids(kept)) & set(ids(held))
    assert 4 <= len(held) <= 16
    more, more_held = split([*TASKS, *(Task(f"new-{number}", "") for number in range(40))], 0.25, seed=1)
    assert set(ids(held)) <= set(ids(more_held))
    assert set(ids(kept)) <= set(ids(more))
    assert ids(split(TASKS, 0.25, seed=2)[1]) != ids(held)


def test_a_split_that_leaves_a_part_empty_is_refused():
    with pytest.raises(BadTask, match="leaves"):
        split(TASKS[:1], 0.5, seed=0)


def test_what_was_always_or_never_solved_teaches_nothing(tmp_path):
    for run, rewards in {"one": {"task-0": [1, 1], "task-1": [0, 1]}, "two": {"task-2": [0, 0], "task-3": [0]}}.items():
        (tmp_path / run).mkdir()
        lines = [
            json.dumps({"extra": {"atropos_agent": {"task": {"id": task}, "verdict": {"reward": reward}}}})
            for task, given in rewards.items()
            for reward in given
        ]
        (tmp_path / run / "rollouts.jsonl").write_text("\n".join([*lines, '{"cut']))
    shares = solved_shares([tmp_path / "one", tmp_path / "two"])
    assert shares == {"task-0": (2, 2), "task-1": (1, 2), "task-2": (0, 2), "task-3": (0, 1)}
    assert ids(keep_useful(TASKS[:5], shares, least=2)) == ["task-1", "task-3", "task-4"]
    with pytest.raises(BadTask, match="nothing is left"):
        keep_useful(TASKS[:1], shares, least=2)
    with pytest.raises(BadTask, match="directories of earlier runs"):
        solved_shares([tmp_path / "none"])


def test_without_a_manifest_all_tasks_are_used(tmp_path):
    assert keep_sound(TASKS, tmp_path, None) == TASKS
    with pytest.raises(BadTask, match=r"named.json is no manifest"):
        keep_sound(TASKS, tmp_path, tmp_path / "named.json")
