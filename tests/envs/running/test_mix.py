"""Several agents in one run."""

from collections import Counter

import orjson
import pytest

from atropos_agent.agent import AtroposAgent
from envs.records.read import read_rollouts
from envs.running.commands import process_groups
from envs.running.group import group_outcomes
from envs.running.mix import Mix
from envs.types import Task

TASK = Task("t", "")


class Brief(AtroposAgent):
    """Samples one reply."""

    async def work(self, turns):
        await turns.reply()


@pytest.mark.parametrize(
    ("option", "agents"),
    [
        ("atropos", {"atropos": 1}),
        ("package.module:Class", {"package.module:Class": 1}),
        ("codex:1, pi:2", {"codex": 1, "pi": 2}),
        ("codex:²", {"codex:²": 1}),
        (
            "codex@0.181.0:3,package.module:Class,my_agent.py:0.5",
            {"codex@0.181.0": 3, "package.module:Class": 1, "my_agent.py": 0.5},
        ),
    ],
)
def test_agents_are_read_with_their_weights(option, agents):
    mix = Mix.of(option)
    assert dict(zip(mix.names, mix.weights, strict=True)) == agents


@pytest.mark.parametrize("option", ["", "codex,", "codex:0", "codex,codex:2", ":2", "codex:1,pi:" + 400 * "9"])
def test_a_mix_that_can_not_be_read_is_refused(option):
    with pytest.raises(ValueError, match="with a weight above 0"):
        Mix.of(option)


def test_groups_draw_agents_by_weight_the_same_at_every_start():
    mix = Mix.of("codex:1,pi:3")
    drawn = [mix.pick(TASK, 5, number) for number in range(400)]
    assert 60 < Counter(drawn)["codex"] < 140
    assert drawn == [Mix.of("codex:1,pi:3").pick(TASK, 5, number) for number in range(400)]
    assert Mix.of("codex").pick(TASK, 5, 0) == ""


def test_a_tag_gives_a_task_to_some_of_the_agents():
    tagged = Task("t", "", tags=("agent=pi", "agent=unknown"))
    assert {Mix.of("codex:100,pi:1").pick(tagged, 0, number) for number in range(50)} == {"pi"}
    assert list(Mix.of("codex:100,pi:1").of_task(tagged)) == ["pi"]


def test_each_agent_of_a_mix_may_work_on_a_task_without_such_a_tag():
    assert list(Mix.of("codex:100,pi:1").of_task(TASK)) == ["codex", "pi"]
    assert list(Mix.of("codex").of_task(TASK)) == [""]


async def test_members_of_a_group_share_an_agent_and_all_that_is_written_tells_them_apart(engine, make_env):
    option = f"atropos:1,{__name__}:Brief:1"
    env = make_env(group_size=2, agent=option, total_steps=6)
    await process_groups(env)
    found = list(read_rollouts(env.run_dir))
    of_group = {}
    for one in found:
        of_group.setdefault(one.seat.group, set()).add(one.seat.agent)
    assert all(len(agents) == 1 for agents in of_group.values())
    assert set.union(*of_group.values()) == {"atropos", f"{__name__}:Brief"}
    assert {one.seat.agent for one in found if len(one.result.steps) > 1} <= {"atropos"}
    for outcome in group_outcomes(env.run_dir):
        assert outcome.drawn == f"agent {next(iter(of_group[outcome.number]))}"
    counted = orjson.loads((env.run_dir / "metrics.json").read_bytes())["agents"]
    assert {name: of["rollouts"] for name, of in counted.items()} == Counter(one.seat.agent for one in found)
