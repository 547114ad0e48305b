"""Questions to a run from another place: what matches, what is new, and a text for the groups to come."""

import asyncio
import os
import threading
import time

import pytest
from samples import rollout, task
from shown_runs import make_run

from envs import runs
from envs.records.atif import RolloutWriter
from envs.runs.reader import NoRun, goes_on, open_run
from envs.runs.search import BadFilter
from envs.types import Seat


@pytest.fixture
def run(run_dir):
    with open_run(run_dir) as run:
        yield run


def ids(lines):
    return [line["id"] for line in lines]


def test_rollouts_are_chosen_by_what_is_known_of_them(run):
    assert ids(run.rollouts(task="add-numbers", step=2)) == ["r-2-0", "r-2-1", "r-2-2", "r-2-3", "e-0", "e-1"]
    assert ids(run.rollouts(least=0.5, most=0.9)) == ["r-3-0"]
    assert ids(run.rollouts(group=1, sign="read_tests")) == ["r-1-2"]
    assert ids(run.rollouts(kind="evaluation", outcome="solved")) == ["e-0"]
    assert len(list(run.rollouts(agent="atropos-agent"))) == 16
    assert ids(run.rollouts(agent="another")) == []


def test_a_line_leads_to_the_whole_rollout(run):
    (line,) = run.rollouts(group=0, q="needle_0_1")
    assert (line["group"], line["member"], line["tags"], line["solved"]) == (0, 1, ["add-numbers", "python"], False)
    assert run.read(line["place"]).id == line["id"] == "r-0-1"


def test_a_filter_that_is_not_there_is_named(run):
    with pytest.raises(BadFilter, match="no filter 'tsk'; did you mean task"):
        next(run.rollouts(tsk="x"))


def test_figures_are_means_of_what_matches_in_one_line_or_by_a_column(run):
    (whole,) = run.figures(task="add-numbers", kind="training")
    assert (whole["rollouts"], whole["reward"], whole["solved"]) == (8, 0.625, 0.625)
    assert [(line["step"], line["reward"]) for line in run.figures("step", kind="training")] == [
        (0, 0.5),
        (1, 0.0),
        (2, 0.75),
        (3, 0.25),
    ]
    assert {line["task"]: line["solved"] for line in run.tasks("evaluation")} == {"add-numbers": 0.5}
    with pytest.raises(BadFilter, match="by 'colour'"):
        run.figures("colour")


def test_groups_are_there_with_their_rewards(run):
    assert [group.number for group in run.groups(task="add-numbers")] == [2, 0]
    assert run.group(1).rewards == [0.0] * 4
    assert run.metrics().rollouts == 16


def test_what_is_saved_while_one_follows_is_given_once_and_the_end_ends_it(tmp_path):
    directory = asyncio.run(make_run(tmp_path / "run", groups=()))

    async def save(name):
        async with RolloutWriter(directory) as writer:
            await writer.write(rollout(name, of=task(name.partition("-")[0]), seat=Seat(step=1)))

    def write():
        for number in range(3):
            time.sleep(0.1)
            asyncio.run(save(f"late-{number}"))

    asyncio.run(save("early"))
    writing = threading.Thread(target=write)
    writing.start()
    with open_run(directory) as run:
        assert ids(run.follow(pause_s=0.02, quiet_s=1.0)) == ["early", "late-0", "late-1", "late-2"]
        writing.join()

        async def followed():
            return [line["id"] async for line in run.following(pause_s=0.02, quiet_s=0.0, task="late")]

        assert asyncio.run(followed()) == ["late-0", "late-1", "late-2"]
    os.utime(directory / "rollouts.jsonl", (0, 0))
    assert not goes_on(directory, time.time() + 100)


def test_two_readers_index_one_run_side_by_side(tmp_path):
    directory = asyncio.run(make_run(tmp_path / "run"))
    found = []

    def read():
        with open_run(directory) as run:
            found.append(len(list(run.rollouts())))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert found == [14] * 4


def test_a_text_is_wished_by_a_file_of_its_name(run_dir, tmp_path):
    directory = asyncio.run(make_run(tmp_path / "run"))
    with runs.open_run(directory) as run:
        assert dict(run.resources) == {}
        run.resources["system_prompt"] = "Be brief."
        assert (directory / "resources" / "system_prompt.txt").read_text() == "Be brief."
        with pytest.raises(ValueError, match="no name of a resource"):
            run.resources["../x"] = "y"


def test_where_there_is_no_run_it_says_so(tmp_path):
    with pytest.raises(NoRun, match=r"no state\.db and no rollouts\.jsonl"):
        open_run(tmp_path)
