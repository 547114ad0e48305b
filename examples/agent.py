"""An agent of one's own: it is told to plan before it works.

python -m envs.swe serve --env.agent agent:Planner        (in this folder)
"""

from collections.abc import Sequence

from atropos_agent.agent import AtroposAgent
from atropos_agent.types import AgentResult, Message

HINT = "Write down a plan of at most three lines before your first call."


class Planner(AtroposAgent):
    async def run(self, task: str, initial_messages: Sequence[Message] | None = None) -> AgentResult:
        return await super().run(f"{task}\n\n{HINT}", initial_messages)
