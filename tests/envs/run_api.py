"""The real trainer API as a process on a free loopback port."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import httpx
from programs import Program


class RunAPI:
    """`run-api` of atroposlib as a process of its own, which a test may stop and start again."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        self._process: Program | None = None

    def start(self) -> None:
        place = ("--host", "127.0.0.1", "--port", self.port)
        self._process = Program(["-m", "atroposlib.cli.run_api", *place], stdout=self._log)
        deadline = time.monotonic() + 60
        with httpx.Client(timeout=5.0) as http:
            while self._process.poll() is None and time.monotonic() < deadline:
                try:
                    http.get(self.url)
                except httpx.TransportError:
                    time.sleep(0.05)
                else:
                    return
        self.stop()
        raise RuntimeError(f"run-api did not start: {self._log.read_text()}")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
