"""An agent of one's own: two conversations work on the task, and a third one says whose answer is better.

python -m envs environment:Products serve --env.agent judge:Judged        (in this folder)
"""

import asyncio

from atropos_agent.agent import AtroposAgent
from atropos_agent.turns import Turns

QUESTION = "{task}\n\nThe first answer: {first}\n\nThe second answer: {second}\n\nWhich is right? Say 1 or 2."


class Judged(AtroposAgent):
    async def work(self, turns: Turns) -> None:
        task = turns.messages[-1]["content"]
        other = turns.fork()
        await asyncio.gather(super().work(turns), super().work(other))
        judge = turns.open(QUESTION.format(task=task, first=turns.final, second=other.final))
        verdict = await judge.reply()
        if verdict.content.strip() == "2":
            turns.final = other.final
