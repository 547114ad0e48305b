"""The embedded inference server as a process of its own."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from programs import Program, lines_of


@asynccontextmanager
async def engine(model: str, length: int = 512, *more: str) -> AsyncIterator[str]:
    """Start it with a model, and more options; give its address."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        options = ("--model", model, "--port", "0", "--max-model-len", length, *more)
        process = await asyncio.to_thread(Program, ["-m", "atropos_agent.cpu_engine", *options], stdout=log)
        try:
            yield await asyncio.to_thread(_address, log, process)
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)


def _address(log: Path, process: Program) -> str:
    for line in lines_of(log, process, 90):
        if line.startswith("Ready: "):
            return line.rpartition(" at ")[2].strip()
    raise RuntimeError(f"the inference server did not start: {log.read_text()}")
