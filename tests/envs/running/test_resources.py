"""New versions of a run's texts while it goes on: whole groups have one of them."""

import asyncio
import logging
from functools import partial

import pytest
from sums import right

from envs.records.read import read_rollouts
from envs.resources import Prompt, Resource
from envs.running import resources as resources_module
from envs.running.commands import CountPace
from envs.running.feed import feed
from envs.running.group import Group
from envs.running.journal import Journal
from envs.running.resources import NoSuchResource, Resources, request_version, versions
from envs.running.sinks import FileSink
from envs.tasks.sampler import Draw
from envs.types import Task


@pytest.fixture
def policy():
    return right


async def drawn(journal, resources):
    return await Group.draw(journal, lambda number: Draw(Task(f"task-{number}", "")), resources)


def named(group):
    return {name: (one.version, one.text) for name, one in group.resources.items()}


async def test_a_group_has_the_newest_versions_of_its_beginning_and_keeps_them(tmp_path):
    async with Journal(tmp_path) as journal:
        resources = await Resources.open(journal, {"system_prompt": None, "hint": Prompt("Add {a}", version="first")})
        before = await drawn(journal, resources)
        resources["hint"] = "Sum up {a}"
        resources["system_prompt"] = Resource("Be brief.", version="brief")
        after = await drawn(journal, resources)
        resources["hint"] = "Sum up {a}"  # which is no news
        assert named(before) == {"hint": ("first", "Add {a}")}
        assert named(after) == {"hint": ("2", "Sum up {a}"), "system_prompt": ("brief", "Be brief.")}
        assert named(await drawn(journal, resources)) == named(after)
        assert resources["hint"].text == "Sum up {a}"
        assert isinstance(after.resources["hint"], Prompt)
        early = await journal.read(lambda db: resources.at(db, before.number))
        assert {name: one.text for name, one in early.items()} == {"hint": "Add {a}"}


async def test_a_later_start_goes_on_with_the_newest_versions_or_with_another_text_of_its_own(tmp_path):
    async with Journal(tmp_path) as journal:
        resources = await Resources.open(journal, {"system_prompt": Resource("one")})
        resources["system_prompt"] = "two"
        await drawn(journal, resources)
    async with Journal(tmp_path) as journal:
        again = await Resources.open(journal, {"system_prompt": Resource("one")})
        assert again["system_prompt"].text == "two"
    async with Journal(tmp_path) as journal:
        other = await Resources.open(journal, {"system_prompt": Resource("three")})
        assert named(await drawn(journal, other)) == {"system_prompt": ("3", "three")}
        known = await journal.read(versions)
        assert [(one.text, one.first, one.source) for one in known] == [
            ("one", 0, "start"),
            ("two", 0, "call"),
            ("three", 1, "start"),
        ]


async def test_a_file_and_a_call_wish_alike_and_the_later_one_counts(tmp_path):
    async with Journal(tmp_path) as journal:
        resources = await Resources.open(journal, {"system_prompt": Resource("one")})
        resources["system_prompt"] = "by a call"
        await asyncio.sleep(0.02)
        request_version(resources.folder, "system_prompt", "by a file")
        assert (await drawn(journal, resources)).resources["system_prompt"].text == "by a file"
        await asyncio.sleep(0.02)
        resources["system_prompt"] = "by a later call"
        assert (await drawn(journal, resources)).resources["system_prompt"].text == "by a later call"
        assert (await drawn(journal, resources)).resources["system_prompt"].text == "by a later call"


async def test_what_can_not_take_a_place_is_refused_by_a_call_and_left_out_of_a_file(tmp_path, caplog):
    async with Journal(tmp_path) as journal:
        resources = await Resources.open(journal, {"hint": Prompt("Add {a}")})
        with pytest.raises(ValueError, match="must have the names of the function's own: a"):
            resources["hint"] = "Add {b}"
        with pytest.raises(NoSuchResource, match="no resource 'hnt'; did you mean hint"):
            resources["hnt"] = "Add {a}"
        for name, text in (("hint", "Add {b}"), ("other", "x")):
            request_version(resources.folder, name, text)
        (resources.folder / "torn.txt").write_bytes(b"\xff")
        with caplog.at_level(logging.ERROR):
            for _ in range(2):
                assert (await drawn(journal, resources)).resources["hint"].text == "Add {a}"
        assert len(caplog.records) == 3, "each is said once"


async def test_a_file_that_is_empty_for_a_moment_is_being_written(tmp_path, monkeypatch):
    async with Journal(tmp_path) as journal:
        resources = await Resources.open(journal, {"system_prompt": Resource("one")})
        request_version(resources.folder, "system_prompt", "")
        assert (await drawn(journal, resources)).resources["system_prompt"].text == "one"
        (resources.folder / "system_prompt.txt").write_text("two")
        assert (await drawn(journal, resources)).resources["system_prompt"].text == "two"
        request_version(resources.folder, "system_prompt", "")
        monkeypatch.setattr(resources_module, "_EMPTY_NS", 0)
        assert (await drawn(journal, resources)).resources["system_prompt"].text == ""


async def test_a_wish_that_meets_a_full_disk_is_not_lost(tmp_path):
    async with Journal(tmp_path) as journal:
        resources = await Resources.open(journal, {"system_prompt": None})
        resources["system_prompt"] = "new"

        def torn(db):
            resources.begin(db, 0)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await journal.write(torn)
        assert (await drawn(journal, resources)).resources["system_prompt"].text == "new"


async def test_every_rollout_and_row_of_a_running_feed_says_which_version_it_had(make_env, tmp_path):
    env = make_env(group_size=2, system_prompt="Add.")
    async with feed(env) as fed:
        first = await fed.ask("sum-1", members=2, name="first")
        fed.resources["system_prompt"] = "Add it up."
        second = await fed.ask("sum-2", members=2, name="second")
    assert {row.resources["system_prompt"]["version"] for row in first.scored.rows} == {"1"}
    assert {row.resources["system_prompt"]["version"] for row in second.scored.rows} == {"2"}
    for saved in read_rollouts(env.run_dir):
        version = saved.result.metadata["resources"]["system_prompt"]["version"]
        system = saved.result.messages[0]["content"]
        assert system.startswith({"1": "Add.", "2": "Add it up."}[version])


async def test_a_group_that_is_gone_on_with_has_the_version_of_its_beginning(make_env):
    class Interrupted(Exception):
        pass

    env = make_env(system_prompt="Add.")
    with pytest.raises(Interrupted):
        async with feed(env) as fed:
            await fed.ask("sum-1", members=1, name="other")
            waiting = asyncio.create_task(fed.ask("sum-2", members=2, name="mine"))
            for _ in range(20):  # by then its group has begun
                await fed.run.journal.read(lambda _: None)
            waiting.cancel()
            raise Interrupted
    async with feed(make_env(system_prompt="Add.")) as fed:
        fed.resources["system_prompt"] = "Add it up."
        new = await fed.ask("sum-3", members=1, name="new")
        mine = await fed.ask("sum-2", members=2, name="mine")
    assert {row.resources["system_prompt"]["version"] for row in mine.scored.rows} == {"1"}
    assert {row.resources["system_prompt"]["version"] for row in new.scored.rows} == {"2"}


async def test_a_file_steers_a_run_in_its_own_order(make_env, tmp_path):
    env = make_env(group_size=2, max_num_workers=1)
    sink = partial(FileSink.to, tmp_path / "groups.jsonl")
    async with feed(env, sink, lambda run, _: CountPace(run, 3)) as fed:
        request_version(fed.resources.folder, "system_prompt", "Add it up.")
        await fed.done()
    told = [saved.result.metadata.get("resources") for saved in read_rollouts(env.run_dir)]
    by_group = {}
    for saved, about in zip(read_rollouts(env.run_dir), told, strict=True):
        by_group.setdefault(saved.seat.group, set()).add(str(about))
    assert all(len(versions) == 1 for versions in by_group.values())
    assert "'version': '1'" in by_group[2].pop()
