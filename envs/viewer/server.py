"""Serve the page on a listening socket."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from envs.viewer.filling import Filling
from envs.viewer.pages import Pages
from envs.viewer.runs import ShownRun


def serve(
    runs: Sequence[ShownRun],
    listening: socket.socket,
    key: str,
    begun: Callable[[uvicorn.Server], object],
    roots: Sequence[Path] = (),
) -> None:
    """Serve until a signal ends the process. begun: called with the server before the first answer. roots: folders
    of runs, of which later ones are shown as well."""
    try:
        with Filling([run.index for run in runs]) as filling:
            config = uvicorn.Config(
                Pages(runs, filling, key, roots).app(),
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=2,
            )
            server = uvicorn.Server(config)
            begun(server)
            server.run(sockets=[listening])
    finally:
        for run in runs:
            run.index.close()
