"""A rollout that was cut short goes on with the replies that it got."""

import asyncio

import httpx
import pytest
from sums import Sums, fill, metrics_of, right

from envs.running.run import open_run
from envs.types import InfraError, Outcome, Verdict
from tools import ToolRegistry


@pytest.fixture
def policy():
    return right


async def test_a_failed_verifier_costs_no_new_replies(engine, make_env):
    class Crashing(Sums):
        async def attempt(self, task, seat):
            outcome = await super().attempt(task, seat)
            if self.attempts[task.id] == 1:
                raise InfraError("verifier", "it crashed")
            return outcome

    env = make_env(Crashing, group_size=1)
    async with open_run(env) as run:
        await fill(run)
    assert env.attempts.total() == 2
    assert engine.requests == 2, "the second attempt got the replies of the first"


async def test_conversations_side_by_side_of_a_foreign_agent_cost_no_new_replies(engine, make_env):
    class Foreign(Sums):
        async def attempt(self, task, seat):
            self.attempts[task.id] += 1
            async with self.session(seat) as session:
                app = httpx.ASGITransport(session.handle)
                async with httpx.AsyncClient(transport=app, base_url="http://gateway") as client:

                    async def ask(number):
                        said = [{"role": "user", "content": f"{task.instruction} ({number})"}]
                        (await client.post("/v1/chat/completions", json={"messages": said})).raise_for_status()

                    await asyncio.gather(*map(ask, range(3)))
                result = await session.result()
            if self.attempts[task.id] == 1:
                raise InfraError("verifier", "it crashed")
            return Outcome(result, Verdict(1.0, ""))

    env = make_env(Foreign, group_size=1)
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert env.attempts.total() == 2
    assert engine.requests == 3, "the second attempt got the replies of the first"
    assert wire["generation_params"]["branches"] == ["main"] * 3


@pytest.mark.parametrize(
    ("output", "requests"),
    [("2 passed in 0.{n}1s", 2), ("real 0m{n}.21s", 2), ("Ran 3 tests in 0.00{n}s", 2), ("{n} passed in 0.01s", 3)],
)
async def test_times_that_tools_print_cost_no_new_replies_and_other_differences_do(engine, make_env, output, requests):
    told = []

    async def calculator(expression: str) -> str:
        told.append(output.format(n=len(told)))
        return told[-1]

    class Timing(Sums):
        async def attempt(self, task, seat):
            result = await self.agent(seat, ToolRegistry([calculator])).run(task.instruction)
            self.results.append(result)
            if len(told) == 1:
                raise InfraError("verifier", "it crashed")
            return Outcome(result, Verdict(1.0, ""))

    env = make_env(Timing, group_size=1)
    env.results = []
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert len(set(told)) == 2
    assert engine.requests == requests
    first, second = env.results
    (row,) = wire["tokens"]
    heard = told[0] if requests == 2 else told[1]
    assert heard in env.tokenizer.decode(row), "the policy answered to what stands in its row"
    assert (second.final_response == first.final_response) == (requests == 2)


def changed(values):
    """Changes of the choice in one request, the second."""

    def edit(number, choice):
        if number == 2:
            choice.update(values)

    return edit


@pytest.mark.parametrize(
    ("values", "attempts"),
    [
        # An interrupted reply is asked for again by the same rollout.
        ({"finish_reason": "abort"}, 1),
        ({"finish_reason": None}, 1),
        ({"finish_reason": "content_filter"}, 2),
        ({"logprobs": {"token_logprobs": [-0.25]}}, 2),
        ({"logprobs": {"token_logprobs": [0.5] * 3}, "token_ids": [1, 2, 3]}, 2),
    ],
    ids=["abort", "no reason", "filtered", "too few logprobs", "positive logprobs"],
)
async def test_a_reply_that_was_refused_is_not_given_again(engine, make_env, values, attempts):
    engine.edit = changed(values)
    env = make_env(group_size=1, attempts=2)
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert wire is not None
    assert wire["scores"] == [1.0]
    assert env.attempts.total() == attempts


async def test_a_refused_reply_is_not_given_again_after_a_restart_either(engine, make_env):
    engine.edit = changed({"finish_reason": "content_filter"})
    env = make_env(group_size=1, attempts=1)
    async with open_run(env) as run:
        group, wire = await fill(run)
        assert wire is None
        number = group.number
    env = make_env(group_size=1, attempts=1)
    async with open_run(env) as run:
        group, wire = await fill(run)
    assert (group.number, wire["scores"]) == (number, [1.0])
    assert engine.requests == 3, "the first reply was sound"


async def test_aborts_cost_no_replies_that_were_sound(engine, make_env):
    def edit(number, choice):
        if number in (2, 3):
            choice["finish_reason"] = "abort"

    engine.edit = edit
    env = make_env(group_size=1)
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert wire["scores"] == [1.0]
    assert engine.requests == 4
    assert metrics_of(env).tokens_refused > 0, "what was sampled for nothing is counted"


async def test_a_reply_that_only_the_rollout_refuses_is_not_given_again(engine, make_env):
    """It was sound, but cut short though there was room."""
    engine.edit = changed({"finish_reason": "length"})
    env = make_env(group_size=1, attempts=2)
    for server in env.servers:
        await server.connect()
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert wire is not None
    assert wire["scores"] == [1.0]


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_replies_to_which_the_server_takes_no_more_are_given_up(engine, make_env, status):
    """Whatever a sound reply holds that makes the next prompt unwelcome, its rollout is not lost for ever."""

    def refuse_the_next_two(number, _choice):
        if number == 1:
            engine.faults = [status, status]

    engine.edit = refuse_the_next_two
    env = make_env(group_size=1)
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert wire["scores"] == [1.0]
    assert engine.requests == 5, "the first reply was given again once, then asked for anew"


async def test_a_verifier_that_fails_on_the_same_replies_twice_gets_others(engine, make_env):
    class Crashing(Sums):
        async def attempt(self, task, seat):
            outcome = await super().attempt(task, seat)
            if engine.requests == 2:
                raise InfraError("verifier", "it crashes on what these replies made")
            return outcome

    env = make_env(Crashing, group_size=1)
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert wire["scores"] == [1.0]
    assert env.attempts.total() == 3
    assert engine.requests == 4
