"""A user tells his wishes one by one: python examples/user.py process --openai.base_url URL --env.total_steps 4"""

import sys
from collections.abc import Sequence

from envs.base import AgentEnv
from envs.cli import run
from envs.config import AgentEnvConfig
from envs.types import Outcome, Seat, Task, Verdict
from tools import ToolRegistry


async def book(people: int, hour: int) -> str:
    """Book a table; the last booking counts."""
    return f"A table for {people} at {hour}."


class Bookings(AgentEnv):
    @classmethod
    def load_tasks(cls, config: AgentEnvConfig) -> tuple[Sequence[Task], Sequence[Task]]:
        tasks = [Task(f"{n}", "I want a table.", metadata={"people": 2 + n % 7, "hour": 17 + n % 5}) for n in range(35)]
        return tasks[5:], tasks[:5]

    async def attempt(self, task: Task, seat: Seat) -> Outcome:
        agent, wish = self.agent(seat, ToolRegistry([book])), task.metadata
        async with agent.turns() as turns:
            for message in (task.instruction, f"We are {wish['people']}.", f"At {wish['hour']}, please."):
                turns.add(message)  # after the end of a budget nothing more is sampled
                await agent.work(turns)
        booked = [dict(call.arguments) for step in turns.result().steps for call in step.calls]
        return Outcome(turns.result(), Verdict(float(booked[-1:] == [wish]), f"booked: {booked}"))


if __name__ == "__main__":
    sys.exit(run(Bookings))
