"""An agent of one's own: where little room is left, it sums up its work, and goes on from that.

python -m envs.swe serve --env.agent compacts:Compacts        (in this folder)
"""

from atropos_agent.agent import AtroposAgent
from atropos_agent.turns import Turns
from atropos_agent.types import Branch

LEAST = 2000
"""Tokens of room at which it sums up."""
SUM_UP = "Sum up what you have found and done, and what is left to do. Call nothing."


class Compacts(AtroposAgent):
    async def work(self, turns: Turns) -> None:
        task = turns.messages
        while turns.ended is None:
            room = turns.room()
            if room is not None and room < LEAST:
                summary = turns.fork(Branch.SUMMARY)
                summary.add(SUM_UP)
                reply = await summary.reply(max_tokens=LEAST // 4)
                turns.restart([*task, {"role": "user", "content": f"Your work so far: {reply.content}"}])
            reply = await turns.reply()
            await turns.execute(reply.calls)
