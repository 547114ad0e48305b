"""Run the page of a run as a process started by the run (see `envs.viewer.live`). It ends with its standard input."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
from pathlib import Path

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run ends us when it ends

import uvicorn

from envs.viewer.door import key_of
from envs.viewer.runs import open_runs
from envs.viewer.server import serve


def main() -> int:
    """Serve the page of one run on an open socket."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--socket", type=int, required=True)
    options = parser.parse_args()
    os.nice(10)

    def ends_with_the_run(server: uvicorn.Server) -> None:
        def wait() -> None:
            sys.stdin.buffer.read()
            server.should_exit = True

        threading.Thread(target=wait, daemon=True).start()

    serve(
        open_runs([options.run_dir]), socket.socket(fileno=options.socket), key_of(options.run_dir), ends_with_the_run
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
