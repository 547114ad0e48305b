"""A reward of one's own: what the hidden tests say, less a little for every malformed call.

python -m envs.swe serve --env.reward reward:careful        (in this folder)
"""

from envs.types import Outcome, Task


def careful(task: Task, outcome: Outcome) -> float:
    return outcome.verdict.reward - 0.1 * min(outcome.result.counts.malformed_calls, 3)
