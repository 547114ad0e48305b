"""A tool of one's own, which needs the sandbox.

python -m envs.swe serve --env.tools terminal,submit,tool:python_tool        (in this folder)
"""

from sandboxes.base import Sandbox
from tools import ToolError, ToolFunction


def python_tool(sandbox: Sandbox) -> ToolFunction:
    async def python(code: str) -> str:
        """Run a Python program in the working directory.

        Args:
            code: the whole program.
        """
        if not code.strip():
            raise ToolError("the program is empty")
        result = await sandbox.exec(["python3", "-c", code], timeout=30, max_output=8000)
        return result.output or "(no output)"

    return python
