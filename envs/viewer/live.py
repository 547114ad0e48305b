"""Show the page of a live run in a process of its own, so viewers don't delay the run.

It reads files, as `view` does, and ends with the run: the run's end closes its standard input.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from envs.viewer.door import address, key_of, listen
from sandboxes.shielding import ending

logger = logging.getLogger(__name__)

ENDS_S = 5.0


@asynccontextmanager
async def live_page(directory: Path, where: str) -> AsyncIterator[None]:
    """Show a run while the block is open. where: `host:port`; "" for no page. Raises OSError for a port in use."""
    if not where:
        yield
        return
    host, _, port = where.rpartition(":")
    try:
        listening = listen(host.strip("[]"), int(port))
    except OSError as error:
        raise OSError(
            f"--env.live {where}: {error.strerror or error}; give another port, or 0 for a free one"
        ) from error
    with listening:
        key = await asyncio.to_thread(key_of, directory)
        page = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "envs.viewer", str(directory), "--socket", str(listening.fileno())),
            pass_fds=[listening.fileno()],
            stdin=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        logger.info("the page: %s", address(listening, key))
    try:
        yield
    finally:
        await _end(page)


async def _end(page: asyncio.subprocess.Process) -> None:
    if page.stdin is not None:
        page.stdin.close()
    async with ending(page):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ENDS_S):
                await page.wait()
