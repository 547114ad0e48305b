"""The tool that ends a rollout."""

from __future__ import annotations

from tools.base import ToolResult


async def submit(answer: str = "") -> ToolResult:
    """Finish the task. Nothing can be done afterwards.

    Args:
        answer: the final answer, if one was requested.
    """
    return ToolResult(answer, done=True)
