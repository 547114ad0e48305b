"""This process's limits."""

import json
import subprocess
import sys

from programs import run

SCRIPT = """
import json, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(hard, 1000)))
from envs.running.limits import raise_open_files
raise_open_files()
print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
"""


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [1000, 1000]


PROGRAM = """
import resource
from envs.base import AgentEnv
from envs.cli import run
from envs.types import BadTask

class Told(AgentEnv):
    name = "told"

    @classmethod
    async def preflight(cls, config):
        raise BadTask(f"files: {resource.getrlimit(resource.RLIMIT_NOFILE)}")

    @classmethod
    def load_tasks(cls, config):
        return [], []

    async def attempt(self, task, seat): ...

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, min(hard, 1000)))
run(Told, ["process", "--env.total_steps=1"])
"""


def test_every_command_does_so_before_it_begins(tmp_path):
    script = tmp_path / "told.py"
    script.write_text(PROGRAM)
    assert "files: (1000, 1000)" in run([script]).stderr
