"""A reward of one's own: what the hidden tests say, less a little for every malformed call.

python examples/reward.py process --openai.base_url http://localhost:9001/v1 --env.total_steps 1
"""

import sys

from envs.cli import run
from envs.swe.environment import SWEEnv


class Careful(SWEEnv):
    def reward(self, task, outcome):
        malformed = outcome.result.counts.malformed_calls
        return outcome.verdict.reward - 0.1 * min(malformed, 3)


if __name__ == "__main__":
    sys.exit(run(Careful))
