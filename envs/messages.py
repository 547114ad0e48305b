"""Write messages to users: their own commands, and errors with place and remedy."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandboxes.log import without_control
from sandboxes.tls import missing_authority

SWE = "python -m envs.swe"
"""The command in our own texts."""
_SAME = ("atropos-agent", "python -m atropos_agent")
"""Other names of it."""


def current_command() -> str:
    """Return the user's command for this process."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None:
        return f"python -m {spec.name.removesuffix('.__main__')}"
    return f"python {sys.argv[0]}" if sys.argv[0].endswith(".py") else Path(sys.argv[0]).name


def replace_command(text: str, prog: str = SWE) -> str:
    """Return a text with `python -m envs.swe` as the user writes it. prog: of another environment."""
    command = current_command()
    return text.replace(SWE, command if prog == SWE and command in _SAME else prog)


SOCKS = "the environment names a SOCKS proxy: unset ALL_PROXY, or pip install 'httpx[socks]'"
"""The remedy where httpx can't use the environment's proxy."""


def describe_error(error: BaseException) -> str:
    """Return an error as a sentence; of a file, it names the place and the remedy."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        place = error.filename2 or error.filename  # a file is written beside its place, and renamed
        return f"{place} can't be used ({error.strerror}); mend that, or give another"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({error}); free some of it, or write to another"
    if isinstance(error, FileNotFoundError) and (remedy := _missing_place() or missing_authority()) is not None:
        return remedy
    if isinstance(error, ImportError) and "SOCKS" in str(error):
        return SOCKS
    return without_control(str(error)) or type(error).__name__  # it may quote a server


def _missing_place() -> str | None:
    """Return the remedy if the working directory was deleted: errors of Python's name no file then."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return "the working directory is no longer there; change to another one and start again"
    return None


def run_main(main: Callable[[Sequence[str]], int], argv: Sequence[str]) -> int:
    """Run a command, and make sure its output is written. Returns the exit status: 130 after Ctrl-C or SIGTERM, 1 if
    the output could not be written.

    A reader may close the pipe before the end, as `| head` does. Characters that its encoding lacks are written as
    escapes."""
    status = 1
    try:
        Path.home()  # Docker's client, the model hub and our caches look there
    except RuntimeError:
        print(f"HOME is not set, and the system knows no user {os.getuid()}: set it to a folder", file=sys.stderr)
        return 2
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with _ctrl_c_by_sigterm():
            status = main(argv)
        if sys.stdout is not None:  # as it is behind `>&-`
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        pass
    except OSError as error:
        print(describe_error(error), file=sys.stderr)
        status = 1
    except ImportError as error:
        if "SOCKS" not in str(error):
            raise
        print(describe_error(error), file=sys.stderr)
        status = 1
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left is written when Python ends
    return status


@contextmanager
def _ctrl_c_by_sigterm() -> Iterator[None]:
    """Have SIGTERM do to this process what Ctrl-C does, whatever that is at the time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
