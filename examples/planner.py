"""An agent of one's own: it plans in a reply of its own, then acts.

python -m envs.swe serve --env.agent planner:Planner        (in this folder)
"""

from atropos_agent.agent import AtroposAgent
from atropos_agent.turns import Turns

PLAN = "Write a plan of at most three lines. Call nothing yet."
ACT = "Now work by your plan."


class Planner(AtroposAgent):
    async def work(self, turns: Turns) -> None:
        turns.add(PLAN)
        await turns.reply(max_tokens=200)
        turns.add(ACT)
        while turns.ended is None:
            reply = await turns.reply()
            await turns.execute(reply.calls)
