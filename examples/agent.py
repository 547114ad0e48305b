"""An agent of one's own: it is asked once more before its answer counts.

python -m envs.swe serve --env.agent agent:AsksOnceMore        (in this folder)
"""

from atropos_agent.agent import AtroposAgent
from atropos_agent.turns import Turns

DOUBT = "Are you sure? Check your work, and correct it where it is wrong."


class AsksOnceMore(AtroposAgent):
    async def work(self, turns: Turns) -> None:
        await super().work(turns)
        turns.add(DOUBT)
        await super().work(turns)
