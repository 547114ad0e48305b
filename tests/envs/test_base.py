"""The environment's class: what a subclass uses, and what is chosen by name."""

from contextlib import AsyncExitStack

import pytest

from atropos_agent.agent import AtroposAgent
from envs.running.failures import attribute
from envs.running.permanent import permanent
from envs.running.run import open_run
from envs.types import Outcome, Seat, Verdict
from tools import ToolRegistry


class Shouting(AtroposAgent):
    """An agent of one's own."""


def half(task, outcome):
    return outcome.verdict.reward / 2


def test_an_agent_is_made_for_its_seat(make_env):
    env = make_env(max_token_length=4096, temperature=0.5, eval_temperature=0.25)
    agent = env.agent(Seat(max_tokens=1000), ToolRegistry(), max_steps=3)
    assert (agent.config.max_total_tokens, agent.config.max_steps, agent.config.temperature) == (1000, 3, 0.5)
    agent = env.agent(Seat(evaluating=True), ToolRegistry())
    assert (agent.config.max_total_tokens, agent.config.temperature, agent.split) == (4096, 0.25, "eval")


def test_evaluations_may_cut_the_distribution_and_training_is_told_nothing_of_it(make_env):
    env = make_env(eval_top_p=0.9, eval_top_k=20, eval_min_p=0.1)
    config = env.agent(Seat(evaluating=True), ToolRegistry()).config
    assert (config.top_p, config.top_k, config.min_p) == (0.9, 20, 0.1)
    config = env.agent(Seat(), ToolRegistry()).config
    assert (config.top_p, config.top_k, config.min_p) == (1.0, 0, 0.0)
    env.config.check_ratios()


async def test_a_run_for_a_trainer_is_not_opened_where_ratios_would_be_wrong(make_env):
    env = make_env(top_k=20)
    with pytest.raises(ValueError, match="top_k 20 cuts unlikely tokens off"):
        async with open_run(env):
            pass
    async with open_run(env, "process"):
        pass


def test_agent_and_reward_are_chosen_by_dotted_paths(make_env):
    env = make_env(agent=f"{__name__}:Shouting", reward=f"{__name__}:half")
    assert isinstance(env.agent(Seat(), ToolRegistry()), Shouting)
    assert env.reward(None, Outcome(None, Verdict(1.0, ""))) == 0.5


@pytest.mark.parametrize("option", ["agent", "reward", "tool_format"])
def test_a_name_that_is_not_there_is_refused_with_its_option(make_env, option):
    with pytest.raises(ValueError, match=rf"--env\.{option} no_such_thing: there is none of that name"):
        make_env(**{option: "no_such_thing"})


async def test_two_runs_of_one_environment_share_nothing_open(make_env):
    env = make_env()
    async with open_run(env) as run:
        first = run.id
    async with open_run(env) as run:
        assert run.id == first, "it is the same run, continued"
        assert (await run.next_group()).number == 0


class Twice(AtroposAgent):
    """Plans in a run of its own, which the result knows nothing of."""

    async def run(self, task, initial_messages=None):
        plan = await super().run(task)
        return await super().run(f"{task} {plan.final_response}", initial_messages)


async def test_an_agent_that_runs_twice_is_refused_by_name_and_never_graded(make_env):
    env = make_env(agent=f"{__name__}:Twice")
    async with AsyncExitStack() as resources:
        for server in env.servers:
            resources.push_async_callback(server.close)
        await env.setup(resources)
        with pytest.raises(NotImplementedError, match="Twice was run a second time in one rollout") as caught:
            await env.attempt(env.tasks()[0][0], Seat())
    error = attribute(caught.value)
    error.__cause__ = caught.value
    assert permanent(error), "another attempt would end as this one"
