"""Say which part of the program took the CPU time of this process: a sampling profiler with names for its parts."""

from __future__ import annotations

import contextlib
import gc
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

PARTS: Mapping[str, str] = {
    "/atropos_agent/engines/": "engine client",
    "/httpx/": "engine client",
    "/httpcore/": "engine client",
    "/anyio/": "engine client",
    "/h11/": "engine client",
    "/sandboxes/docker/executor/channel.py": "sandbox channel",
    "/sandboxes/docker/executor/connection.py": "sandbox channel",
    "/sandboxes/docker/executor/sandbox.py": "sandbox channel",
    "/sandboxes/docker/executor/streams.py": "sandbox channel",
    "/sandboxes/docker/executor/tunnel.py": "sandbox channel",
    "/sandboxes/local/": "sandbox channel",
    "/sandboxes/": "opening sandboxes",
    "/aiodocker/": "opening sandboxes",
    "/atropos_agent/tokens/": "template and tokenizer",
    "/atropos_agent/formats/": "template and tokenizer",
    "/transformers/": "template and tokenizer",
    "/tokenizers/": "template and tokenizer",
    "/jinja2/": "template and tokenizer",
    "/envs/running/journal.py": "journal and records",
    "/envs/running/replay.py": "journal and records",
    "/envs/running/group.py": "journal and records",
    "/envs/records/": "journal and records",
    "/envs/delivery/": "journal and records",
    "/atropos_agent/agent.py": "agent and tools",
    "/tools/": "agent and tools",
    "/envs/": "run",
}
"""Parts by a piece of a file's path; the first that fits. The innermost frame that has a part decides."""

OPENING = ("/sandboxes/docker/open_sandboxes.py", "/sandboxes/docker/daemon/starter.py", "/sandboxes/docker/pool.py")
LOOP = "event loop"
COLLECTION = "garbage collection"
INTERVAL_S = 0.002


class CpuParts:
    """CPU seconds of this process by part, sampled on the main thread and read from the system for the others.

    Use `with parts.counting()`, in the main thread."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.total_s = 0.0
        self.functions: dict[str, float] = defaultdict(float)
        """CPU seconds by the function that decided about the part; for the event loop, and other threads by name."""
        self._known: dict[str, str | None] = {}
        self._before = 0.0
        self._collected = 0.0

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count while the block runs."""
        threads, began, main = _threads(), time.process_time(), time.thread_time()
        self._before = main
        signal.signal(signal.SIGPROF, self._sample)
        gc.callbacks.append(self._collecting)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            gc.callbacks.remove(self._collecting)
            spent = time.thread_time() - main
            self.total_s += time.process_time() - began
            others = time.process_time() - began - spent
            for name, seconds in _threads().items():
                own = seconds - threads.get(name, 0.0)
                self.functions[f"thread {name}"] += own
                if name.startswith("journal"):
                    self.seconds["journal and records"] += own
                    others -= own
            self.seconds["other threads"] += max(0.0, others)

    def _collecting(self, phase: str, info: Mapping[str, int]) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        now = time.thread_time()
        if phase == "start":
            self._collected = now
        else:
            self.seconds[COLLECTION] += now - self._collected
            self.functions[f"{COLLECTION}: generation {info['generation']}"] += now - self._collected
            self._before += now - self._collected

    def _sample(self, _: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        spent, self._before = now - self._before, now
        part, place = self._owner(frame)
        self.seconds[part] += spent
        self.functions[f"{part}: {place}"] += spent

    def _owner(self, frame: FrameType | None) -> tuple[str, str]:
        """The part that a stack belongs to, and the function that says so."""
        found, place, http, innermost = None, "", None, frame
        while frame is not None:
            name = frame.f_code.co_filename
            if name not in self._known:
                self._known[name] = next((part for piece, part in PARTS.items() if piece in name), None)
            part = self._known[name]
            if found is None and part is not None:
                found, place = part, _place(frame)
                if found != "sandbox channel":
                    return found, place
            elif found is not None and name.endswith(OPENING):
                return "opening sandboxes", place
            if found is None and http is None and name.endswith("/aiohttp/client_proto.py"):
                http = _who_reads(frame)
            frame = frame.f_back
        return found or http or LOOP, place or ("" if innermost is None else _place(innermost))


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_qualname}"


def _who_reads(frame: FrameType) -> str:
    """Tell the Docker daemon's connections from those of inference servers, where aiohttp is called back."""
    transport = getattr(frame.f_locals.get("self"), "transport", None)
    name = None if transport is None else transport.get_extra_info("peername")
    return "engine client" if isinstance(name, tuple) else "opening sandboxes"


def _threads() -> dict[str, float]:
    """CPU seconds of the process's Python threads, by name."""
    found: dict[str, float] = {}
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and thread.ident is not None:
            with contextlib.suppress(OSError):
                clock = time.pthread_getcpuclockid(thread.ident)
                found[thread.name] = time.clock_gettime(clock)
    return found
