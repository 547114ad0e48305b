"""Command lines of programs with options of their own: short messages, the nearest name, numbers with bounds."""

from __future__ import annotations

import argparse
import ipaddress
import math
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, cast
from urllib.parse import urlsplit

from sandboxes.naming import did_you_mean

WRONG_USE = 2
"""The exit status of a program after impossible options."""


class Parser(argparse.ArgumentParser):
    """A parser of options by their whole names, with one line of explanation for each mistake.

    Subcommands are made of the same class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Return the options. Ends the process with status 2 if they are wrong."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            chosen = self._chosen_parser(sys.argv[1:] if args is None else args)
            known = [name for action in chosen._actions for name in action.option_strings]
            names = [word.partition("=")[0] for word in unknown if word.startswith("-")]
            lines = [f"  {name}: there is no such option{did_you_mean(name, known)}" for name in names]
            chosen.error("\n".join(lines or [f"  {word!r} belongs to no option" for word in unknown]))
        return found

    def error(self, message: str) -> NoReturn:
        """Print the mistake and the place with the options' explanation. Ends the process."""
        lines = f"\n{message}" if message.startswith(" ") else f" {message}"
        self.exit(WRONG_USE, f"{self.prog}:{lines}\n{self.prog} --help explains its options\n")

    def _chosen_parser(self, args: Sequence[str]) -> Parser:
        """Return the parser of the chosen subcommand; this one without any."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name in filter(action.choices.__contains__, args):
                    return cast(Parser, action.choices[name])._chosen_parser(args)
        return self


def positive_int(text: str) -> int:
    """Return a number of one or more."""
    return _parse_int(text, 1)


def nonnegative_int(text: str) -> int:
    """Return a number of zero or more."""
    return _parse_int(text, 0)


def port(text: str) -> int:
    """Return a TCP port, or 0 for a free one."""
    found = _parse_int(text, 0)
    if found > 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port; give one up to 65535")
    return found


def positive_float(text: str) -> float:
    """Return a number above zero."""
    found = _parse_float(text)
    if found <= 0:
        raise argparse.ArgumentTypeError(f"{text} is too small; give a number above 0")
    return found


def nonnegative_float(text: str) -> float:
    """Return a number of zero or more."""
    found = _parse_float(text)
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text} is too small; give a number of at least 0")
    return found


def nonempty_text(text: str) -> str:
    """Return a text, which may not be empty."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; give a value, or leave it out")
    return text


def output_folder(text: str) -> Path:
    """Return a directory for writing files: it exists, or can be made."""
    return _check_output_path(text, "a directory", Path.is_dir)


def output_file(text: str) -> Path:
    """Return a file for writing: it exists, or can be made."""
    return _check_output_path(text, "a file", Path.is_file)


def new_output_file(text: str) -> Path:
    """Return a file for writing that is not there yet."""
    if (path := output_file(text)).exists():
        raise argparse.ArgumentTypeError(f"{path} is there already; name another place")
    return path


def output_path(text: str) -> Path:
    """Return a file or directory for writing: it exists, or can be made."""
    return _check_output_path(text, "a file or directory", Path.exists)


def existing_path(text: str) -> Path:
    """Return an existing file or directory."""
    path = Path(nonempty_text(text))
    with suppress(OSError):  # a name that is too long is none of a file's
        if path.exists():
            return path
    raise argparse.ArgumentTypeError(f"{path} is not there; give another")


def url(text: str) -> str:
    """Return the URL of a server."""
    try:
        return web_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error} (got {text!r})") from None


def web_address(url: str) -> str:
    """Return a URL for HTTP. Raises ValueError, which names the missing part."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError as error:
        raise ValueError(f"this is no URL ({error}); give one like http://localhost:8000") from None
    if not whole or url != url.strip() or " " in url:
        raise ValueError("this is no URL of a server; give one like http://localhost:8000, with http:// or https://")
    return url


def host_port(address: str) -> str:
    """Return an address to listen at. Raises ValueError, which names the missing part."""
    host, colon, number = address.rpartition(":")
    if not (colon and host and number.isdecimal() and 0 < int(number) < 2**16) or address != address.strip():
        raise ValueError("this is no address; give HOST:PORT, such as 127.0.0.1:9464")
    return address


def loopback(address: str) -> str:
    """Return an address of this machine to listen at; port 0 is a free one. Raises ValueError, which names the missing
    part."""
    host, colon, number = address.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.removeprefix("[").removesuffix("]")
    if not (colon and number.isdecimal() and int(number) < 2**16):
        raise ValueError("this is no address; give HOST:PORT, such as 127.0.0.1:8900")
    try:
        inside = ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        where = host or "every address"
        raise ValueError(f"{where} is not this machine alone; give 127.0.0.1, and reach it from elsewhere by ssh -L")
    return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"


def _check_output_path(text: str, what: str, fits: Callable[[Path], bool]) -> Path:
    path = above = Path(nonempty_text(text))
    if text == "-":
        raise argparse.ArgumentTypeError("- is no place: nothing is written to the standard output; name " + what)
    try:
        if path.exists() and not fits(path):
            raise argparse.ArgumentTypeError(f"{path} is there and is not {what}; give another")
        while not above.exists() and above != above.parent:
            above = above.parent
        if above != path and not above.is_dir():
            raise argparse.ArgumentTypeError(f"{above} is not a directory; give another place than {path}")
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} can be no path ({error}); give another") from None
    if above.is_dir():
        try:  # some file systems refuse those who have the permission
            with tempfile.TemporaryDirectory(dir=above):
                pass
        except OSError as error:
            raise argparse.ArgumentTypeError(f"{above} can't be written ({error.strerror}); give another") from None
    elif not os.access(above, os.W_OK):
        raise argparse.ArgumentTypeError(f"{above} can't be written; give another place")
    return path


def _parse_int(text: str, least: int) -> int:
    try:
        found = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
    if found < least:
        raise argparse.ArgumentTypeError(f"{text} is too small; give a number of at least {least}")
    return found


def _parse_float(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not math.isfinite(found):
        raise argparse.ArgumentTypeError(f"{text} is not finite")
    return found
