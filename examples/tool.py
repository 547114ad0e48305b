"""A tool of one's own, in the software engineering environment.

python examples/tool.py process --openai.base_url http://localhost:9001/v1 --env.total_steps 1
"""

import sys

from envs.cli import run
from envs.swe.environment import SWEEnv
from tools import ToolError, ToolRegistry


class PythonRunner:
    """A tool that needs the sandbox is a method of an object that holds it."""

    def __init__(self, sandbox):
        self.sandbox = sandbox

    async def python(self, code: str) -> str:
        """Run a Python program in the working directory.

        Args:
            code: the whole program.
        """
        if not code.strip():
            raise ToolError("the program is empty")
        result = await self.sandbox.exec(["python3", "-c", code], timeout=30, max_output=8000)
        return result.output or "(no output)"


class WithPython(SWEEnv):
    def make_tools(self, sandbox):
        return ToolRegistry([*super().make_tools(sandbox), PythonRunner(sandbox).python])


if __name__ == "__main__":
    sys.exit(run(WithPython))
