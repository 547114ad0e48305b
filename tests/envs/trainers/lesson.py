"""The smoke preset's lesson in temporary directories: an environment that a model of a million parameters can solve."""

from envs.base import AgentEnv
from envs.lab import smoke
from envs.lab.synthetic import TOOLS, WORKING_DIR
from envs.types import Outcome, Task, Verdict
from sandboxes.base import SandboxSpec
from sandboxes.local import LocalBackend
from tools import default_tools


class Lesson(AgentEnv):
    """An empty file is to be made."""

    name = "lesson"

    @classmethod
    def load_tasks(cls, config):
        return tuple([Task(task.instruction, task.instruction) for task in tasks] for tasks in smoke.tasks())

    async def setup(self, resources):
        self.backend = await resources.enter_async_context(LocalBackend())

    async def attempt(self, task, seat):
        async with self.backend.open(SandboxSpec("", workdir=WORKING_DIR)) as sandbox:
            agent = self.agent(seat, default_tools(sandbox, TOOLS), working_dir=WORKING_DIR)
            result = await agent.run(task.instruction)
            made = await sandbox.exec("test -f ready -a ! -s ready")
        return Outcome(result, Verdict(float(made.exit_code == 0), ""))
