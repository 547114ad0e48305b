"""The embedded inference server as a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def engine(model: str, length: int = 512) -> AsyncIterator[str]:
    """Start it with a model; give its address."""
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "atropos_agent.cpu_engine",
            "--model",
            model,
            "--port",
            "0",
            "--max-model-len",
            str(length),
        ),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        line = (await asyncio.wait_for(process.stdout.readline(), 90)).decode()
        yield line.rpartition(" at ")[2].strip()
    finally:
        process.terminate()
        await process.wait()
