"""The maker of the sandboxes: one of our backends by its name, anybody else's by a dotted path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sandboxes.base import Backend
from sandboxes.docker import DockerBackend, PoolLimits
from sandboxes.e2b.backend import E2BBackend
from sandboxes.fleet import FleetBackend, read_hosts
from sandboxes.kubernetes.backend import KubernetesBackend
from sandboxes.local import LocalBackend
from sandboxes.naming import resolve
from sandboxes.signatures import signature_of

_OPTION = "--env.sandbox"


def docker_backend(
    hosts: str | None = None,
    *,
    base_image: str | None = None,
    pool: PoolLimits | None = None,
    runtime: str | None = None,
    starter: str | None = None,
) -> Backend:
    """Return a maker of sandboxes with Docker: on one host, or on several if they are named, see `read_hosts`.

    The others are options of `DockerBackend`. Raises ValueError for impossible hosts."""
    options: Any = {"base_image": base_image, "pool": pool, "runtime": runtime, "starter": starter}
    return FleetBackend(read_hosts(hosts), **options) if hosts else DockerBackend(**options)


_FLAGS = {
    "e2b": "--env.e2b",
    "pods": "--env.pods",
    "pool": "--env.warm_sandboxes",
    "runtime": "--env.sandbox_runtime",
    "starter": "--env.sandbox_starter",
}
"""Options of backends as the command line writes them, where that is not plain."""

_OURS: dict[str, Callable[..., Backend]] = {
    "docker": docker_backend,
    "e2b": E2BBackend,
    "kubernetes": KubernetesBackend,
    "local": LocalBackend,
}


def named_factory(name: str, **options: Any) -> Callable[..., Backend]:
    """Return the maker of the named backend. Raises ValueError, with the remedy, for an unknown name, and for options
    other than None that it does not take."""
    factory: Callable[..., Backend] = resolve(_OPTION, name, _OURS, "atropos_agent.sandboxes")
    if not callable(factory):
        raise ValueError(f"{_OPTION} {name}: this is not callable; name a class, or a function that returns a backend")
    taken = signature_of(factory).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values()):
        unknown = sorted(_given(options).keys() - taken.keys())
        if unknown:
            names = ", ".join(f"{option} ({_FLAGS[option]})" if option in _FLAGS else option for option in unknown)
            raise ValueError(f"{_OPTION} {name}: this backend takes no {names}; leave that away or choose another one")
    return factory


def load_backend(name: str, **options: Any) -> Backend:
    """Make the named backend: one of ours, an entry point, or your own "package.module:factory".

    factory: a class or a function with a `Backend` as its result; it is called with all options other than None.
    Raises ValueError, with the option's name and the remedy, for an unknown backend, a missing option, or a factory of
    something else.
    """
    made = named_factory(name, **options)(**_given(options))
    if not isinstance(made, Backend):
        raise ValueError(
            f"{_OPTION} {name}: this makes no backend (its type is {type(made).__name__}); subclass "
            "sandboxes.base.Backend"
        )
    return made


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {option: value for option, value in options.items() if value is not None}
