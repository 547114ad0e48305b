"""Refusals of a small server of the tests' own."""

from __future__ import annotations

from collections import deque


class Refusals(deque):
    """Answers to the next requests, each (method, part of the path, status, message); a negative status: it is done,
    and the answer is lost."""

    async def of(self, request, handler) -> tuple[int, str] | None:
        """Return the status and message of a request's refusal, None if it is none."""
        if not self or request.method != self[0][0] or self[0][1] not in request.path:
            return None
        _, _, status, message = self.popleft()
        if status < 0:
            await handler(request)
        return abs(status), message
