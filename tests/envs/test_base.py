"""The environment's class: what a subclass uses, and what is chosen by name."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from atropos_agent.agent import AtroposAgent
from atropos_agent.tokens.record import problems
from envs.base import AgentEnv
from envs.running.permanent import is_permanent
from envs.running.run import open_run
from envs.running.watchdog import LoopWatch
from envs.running.worker import LocalWorker
from envs.types import InfraError, Outcome, Seat, Verdict
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


def test_a_tokenizer_that_is_not_named_is_asked_for(make_env):
    with pytest.raises(ValueError, match="tokenizer_name is empty; give the folder or the hub name"):
        make_env(tokenizer_name="")


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


async def awaited(self, *given):
    return 0.5


@pytest.mark.parametrize(
    "name, method", [("reward", awaited), ("load_tasks", classmethod(awaited)), ("expect", awaited)]
)
def test_an_async_method_that_nobody_awaits_is_refused_as_the_class_is_made(name, method):
    with pytest.raises(TypeError, match=rf"Mine\.{name} is async, and nobody awaits it; write it with `def`"):
        type("Mine", (AgentEnv,), {name: method})
    type("Mine", (AgentEnv,), {"attempt": awaited, "setup": awaited, "helper": awaited})


@pytest.mark.parametrize("option", ["agent", "reward", "tool_format"])
def test_a_name_that_is_not_there_is_refused_with_its_option(make_env, option):
    with pytest.raises(ValueError, match=rf"--env\.{option} no_such_thing: there is none of that name"):
        make_env(**{option: "no_such_thing"})


def test_a_run_stays_in_its_directory_wherever_the_process_goes(make_env, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert make_env(run_dir=Path("runs/mine")).run_dir == tmp_path / "runs/mine"


async def test_two_runs_of_one_environment_share_nothing_open(make_env):
    env = make_env()
    async with open_run(env) as run:
        first = run.id
    async with open_run(env) as run:
        assert run.id == first, "it is the same run, continued"
        assert (await run.next_group()).number == 0


class Twice(AtroposAgent):
    """Plans in a run of its own."""

    forgetful = False

    async def run(self, task, initial_messages=None):
        plan = await super().run(task)
        result = await super().run(f"{task} {plan.final_response}")
        return plan if self.forgetful else result


class Forgetful(Twice):
    """Returns what it knows of its first run."""

    forgetful = True


@pytest.mark.parametrize("kind", [Twice, Forgetful])
async def test_a_second_run_goes_on_with_the_rollout_and_none_is_graded_that_loses_a_reply(make_env, kind):
    env = make_env(agent=f"{__name__}:{kind.__name__}")
    async with AsyncExitStack() as resources:
        for server in env.servers:
            resources.push_async_callback(server.close)
        await env.setup(resources)
        work = LocalWorker(env, env.config, LoopWatch()).run(env.tasks()[0][0], Seat())
        if kind is Twice:
            result = (await work).result
            assert [m["content"] for m in result.messages].count("What is 0 + 0?") == 1
            assert sum(m["role"] == "assistant" for m in result.messages) == result.num_steps
            assert problems(result.segments, result.record) == [None]
            return
        with pytest.raises(InfraError, match="sampled are not in its result") as caught:
            await work
    assert is_permanent(caught.value), "another attempt would end as this one"
