"""A sandbox backend of one's own: the Docker one, which logs every command of the agent and the judge.

python examples/sandbox_backend.py process --openai.base_url http://localhost:9001/v1 --env.total_steps 1
"""

import logging
import sys
from contextlib import asynccontextmanager

from envs.cli import run
from envs.swe.environment import SWEEnv
from sandboxes.docker.backend import DockerBackend


class Logged:  # any object with the methods of `sandboxes.base.Sandbox` will do; this one lends most of them
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    async def exec(self, command, **options):
        result = await self.inner.exec(command, **options)
        logging.getLogger("commands").warning("%s ended with %d: %s", command, result.exit_code, result.output[:80])
        return result


class LoggingBackend(DockerBackend):
    @asynccontextmanager
    async def open(self, spec):
        async with super().open(spec) as sandbox:
            yield Logged(sandbox)


class LoggedSWE(SWEEnv):
    def make_backend(self):
        return LoggingBackend()


if __name__ == "__main__":
    sys.exit(run(LoggedSWE))
