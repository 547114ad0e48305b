"""Leads a socket of this host to the Docker daemon of another one, by the machine's own ssh client."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from sandboxes.base import DaemonUnavailable
from sandboxes.shielding import finish

_LIMIT_S = 20.0
_OPTIONS = [
    *("-o", "BatchMode=yes"),
    *("-o", "ExitOnForwardFailure=yes"),
    *("-o", "ServerAliveInterval=15"),
    *("-o", "StreamLocalBindUnlink=yes"),
]


@asynccontextmanager
async def ssh_tunnel(url: str) -> AsyncIterator[str]:
    """Open a tunnel for `ssh://[user@]host[:port][/path/of/the/daemon's/socket]`, and close it in the end.

    Yields the address of the socket here, "unix://…". Keys, known hosts and options are those of the first
    `ssh` on the PATH. Raises DaemonUnavailable with ssh's message.
    """
    if not shutil.which("ssh"):
        raise DaemonUnavailable(f"{url} needs an ssh client on this host")
    path = urlsplit(url).path
    with tempfile.TemporaryDirectory(prefix="atropos-ssh-") as directory:
        socket = Path(directory) / "docker.sock"
        forward = f"{socket}:{path.rstrip('/') or '/var/run/docker.sock'}"
        command = ["ssh", "-nNT", *_OPTIONS, "-L", forward, "--", url.removesuffix(path)]
        said = Path(directory) / "stderr"  # a file: ssh must neither be waited for here, nor wait for a reader
        with said.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(*command, stderr=stderr, start_new_session=True)
        try:
            deadline = time.monotonic() + _LIMIT_S
            while not socket.exists():
                if process.returncode is not None or time.monotonic() > deadline:
                    error_text = said.read_text(errors="replace")[:2000].strip()
                    raise DaemonUnavailable(
                        f"no ssh connection for {url}: {error_text or 'no answer in time'}; "
                        f"`ssh {url.removesuffix(path)}` has to work without a question"
                    )
                await asyncio.sleep(0.02)
            yield f"unix://{socket}"
        finally:
            if process.returncode is None:
                process.terminate()
            await finish(process.wait())
