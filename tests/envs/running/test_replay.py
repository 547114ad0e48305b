"""A rollout that was cut short goes on with the replies that it got."""

import pytest
from scripted_engine import ScriptedEngine
from sums import Sums, fill, right

from envs.running.run import open_run
from envs.types import InfraError, Outcome, Verdict
from tools import ToolRegistry


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(right, smollm2_tokenizer) as engine:
        yield engine


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
