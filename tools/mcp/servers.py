"""MCP servers as tasks and runs describe them, and the two ways in which one fails a call."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

import yaml
from pydantic import AliasChoices, BaseModel, Field, ValidationError

from sandboxes.installing import install
from tools.base import ToolError

Transport = Literal["stdio", "sse", "streamable-http"]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_OTHER_NAMES = {"http": "streamable-http", "streamable_http": "streamable-http", "streamableHttp": "streamable-http"}
_SHAPE = "expected a list of servers with a `name` each, or a mapping of names to servers"


class MCPServerError(RuntimeError):
    """A server failed by itself: it did not start, broke the protocol, or ended. No call of the model's is to blame.

    of_task: the task brings the server. hopeless: another attempt fails again."""

    def __init__(self, server: MCPServer, what: str, *, hopeless: bool = False) -> None:
        super().__init__(f"the MCP server {server.name!r} {what}")
        self.of_task = server.of_task
        self.hopeless = hopeless


class CallInterruptedError(ToolError):
    """A call came to no end, by something that a call or a command of the model's can cause. The server is started
    again."""

    def __init__(self, server: MCPServer, what: str) -> None:
        super().__init__(
            f"the MCP server {server.name!r} {what}. It is started again for the next call, and has then forgotten "
            "everything"
        )


@dataclass(frozen=True, slots=True)
class MCPServer:
    """A server of tools.

    command: a program in the sandbox, with its arguments. It speaks over its standard input and output, or, if there
        is a `url`, listens there. env: in addition to the sandbox's.
    url, headers: of a server by HTTP.
    inside: the url's host is the sandbox, not this machine.
    of_task: the task brings it; else the run does.
    """

    name: str
    transport: Transport
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    inside: bool = False
    of_task: bool = False

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80


class _Entry(BaseModel):
    """A server as Harbor's task.toml has it, or the `mcpServers` of other agents' files. Further keys are ignored."""

    name: str = Field(pattern=r"^[^\x00-\x1f]{1,100}$")
    transport: str | None = Field(default=None, validation_alias=AliasChoices("transport", "type"))
    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}


def parse_servers(entries: object, fill: Callable[[str], str], *, of_task: bool) -> tuple[MCPServer, ...]:
    """Return the servers of a list with a `name` in each entry, or of a mapping by name. Raises ValueError.

    fill: puts values in the place of `${NAME}`."""
    if isinstance(entries, Mapping):
        if lost := [name for name, one in entries.items() if not isinstance(one, Mapping)]:
            raise ValueError(f"{lost[0]!r} is no server: it is a mapping with a `command` or a `url`; {_SHAPE}")
        entries = [{"name": name, **one} for name, one in entries.items()]
    if not isinstance(entries, list):
        raise ValueError(_SHAPE)
    try:
        servers = [_make_server(_Entry.model_validate(entry), fill, of_task=of_task) for entry in entries]
    except ValidationError as error:
        where, why = error.errors()[0]["loc"], error.errors()[0]["msg"]
        raise ValueError(f"{'.'.join(map(str, where))}: {why}; {_SHAPE}") from None
    names = Counter(server.name for server in servers)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ValueError(f"two servers have the name {twice[0]!r}; rename one")
    return tuple(servers)


def read_servers(path: Path, variables: Mapping[str, str]) -> tuple[MCPServer, ...]:
    """Return the servers of a run from a JSON or YAML file: under `mcpServers`, `mcp_servers`, or the whole of it.

    variables: values for `${NAME}`. Raises ValueError."""
    where = f"--env.mcp_servers {path}"

    def fill(text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda match: variables[match[1]], text)

    try:
        content = yaml.safe_load(path.expanduser().read_text(encoding="utf-8"))
        if isinstance(content, Mapping):
            content = content.get("mcpServers", content.get("mcp_servers", content))
        return parse_servers(content, fill, of_task=False)
    except OSError as error:
        raise ValueError(f"{where}: {error.strerror}") from None
    except KeyError as error:
        raise ValueError(f"{where}: the environment has no variable {error.args[0]}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def check_installed(servers: int) -> None:
    """Raise ValueError if there are servers and the package to speak to them is missing."""
    if servers and importlib.util.find_spec("mcp") is None:
        raise ValueError(f"MCP servers need a package that is missing: {install('mcp')}")


def _make_server(entry: _Entry, fill: Callable[[str], str], *, of_task: bool) -> MCPServer:
    transport: Any = _choose_transport(entry, of_task=of_task)
    url, where = fill(entry.url), f"server {entry.name!r}"
    if transport == "stdio" and (not entry.command or url):
        raise ValueError(f"{where}: a server by stdio has a `command` and no `url`")
    if transport != "stdio" and not url:
        raise ValueError(f"{where}: a server by {transport} has a `url`")
    parts = urlsplit(url)
    if url and not (parts.scheme in ("http", "https") and parts.hostname and _has_port(parts)):
        raise ValueError(f"{where}: {url!r} is no address of a server; write http://host:port/path")
    inside = bool(url) and (of_task or bool(entry.command))
    if inside and (parts.hostname not in _LOOPBACK or parts.scheme != "http"):
        raise ValueError(
            f"{where}: {url} is not in the sandbox, such as http://127.0.0.1:8000/mcp, and tasks name no others; give "
            "a server elsewhere to the run (--env.mcp_servers)"
        )
    if inside and not entry.command:
        raise ValueError(f"{where}: nothing starts it in the sandbox; give its `command` beside the `url`")
    return MCPServer(
        name=entry.name,
        transport=transport,
        command=(entry.command, *entry.args) if entry.command else (),
        env={name: fill(value) for name, value in entry.env.items()},
        url=url,
        headers={name: fill(value) for name, value in entry.headers.items()},
        inside=inside,
        of_task=of_task,
    )


def _has_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def _choose_transport(entry: _Entry, *, of_task: bool) -> str:
    """Return how a server is spoken to. Harbor's default by HTTP is sse; everybody else's is the newer one."""
    if entry.transport is None:
        return "stdio" if not entry.url else "sse" if of_task else "streamable-http"
    transport = _OTHER_NAMES.get(entry.transport, entry.transport)
    if transport not in ("stdio", "sse", "streamable-http"):
        raise ValueError(f"server {entry.name!r}: there is no transport {transport!r}; use stdio, sse, streamable-http")
    return transport
