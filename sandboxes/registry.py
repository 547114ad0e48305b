"""Which backend makes the sandboxes: one of ours by its name, anybody else's by a dotted path."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from sandboxes.base import Backend
from sandboxes.docker import DockerBackend
from sandboxes.fleet import FleetBackend, read_hosts
from sandboxes.local import LocalBackend
from sandboxes.naming import resolve

_OPTION = "--env.sandbox"


def docker_backend(hosts: str | None = None, **options: Any) -> Backend:
    """Return what makes sandboxes with Docker: on one host, or on several where they are named, see `read_hosts`.

    options: of `DockerBackend`. Raises ValueError for hosts that can't be meant."""
    return FleetBackend(read_hosts(hosts), **options) if hosts else DockerBackend(**options)


_OURS: dict[str, Callable[..., Backend]] = {"docker": docker_backend, "local": LocalBackend}


def named_factory(name: str) -> Callable[..., Backend]:
    """Return what makes the backend that is named. Raises ValueError, with the remedy, when there is no such one."""
    factory: Callable[..., Backend] = resolve(_OPTION, name, _OURS, "atropos_agent.sandboxes")
    if not callable(factory):
        raise ValueError(f"{_OPTION} {name}: this is not callable; name a class, or a function that returns a backend")
    return factory


def load_backend(name: str, **options: Any) -> Backend:
    """Make the named backend: "docker", "local", an entry point, or "package.module:factory" for one of your own.

    factory: a class or a function that returns a `Backend`; it is called with the options that are not None.
    Raises ValueError, which names the option and the remedy, when there is no such backend or it lacks an option.
    """
    factory = named_factory(name)
    given = {option: value for option, value in options.items() if value is not None}
    taken = inspect.signature(factory).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        unknown = sorted(given.keys() - taken.keys())
        if unknown:
            raise ValueError(
                f"{_OPTION} {name}: this backend takes no {', '.join(unknown)}; leave that away or choose another one"
            )
    backend: Backend = factory(**given)
    return backend
