"""The maker of the sandboxes: one of our backends by its name, anybody else's by a dotted path."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from sandboxes.base import Backend
from sandboxes.docker import DockerBackend
from sandboxes.fleet import FleetBackend, read_hosts
from sandboxes.local import LocalBackend
from sandboxes.naming import resolve

_OPTION = "--env.sandbox"


def docker_backend(hosts: str | None = None, **options: Any) -> Backend:
    """Return a maker of sandboxes with Docker: on one host, or on several if they are named, see `read_hosts`.

    options: of `DockerBackend`. Raises ValueError for impossible hosts."""
    return FleetBackend(read_hosts(hosts), **options) if hosts else DockerBackend(**options)


def kubernetes_backend(*, pods: Any = None, base_image: str | None = None) -> Backend:
    """Return a maker of sandboxes in pods. Raises ValueError without the extra `kubernetes`."""
    make: Callable[..., Backend] = _of_pods("KubernetesBackend")
    return make(pods=pods, base_image=base_image)


async def reap_pods(namespace: str) -> int:
    """Remove pods of dead drivers; "" for the kubeconfig's namespace. Returns how many. Raises ValueError without the
    extra `kubernetes`."""
    removed: int = await _of_pods("reap_dead_drivers")(namespace)
    return removed


def _of_pods(name: str) -> Any:
    try:
        return resolve_name(f"sandboxes.kubernetes.backend:{name}")
    except ImportError as error:
        raise ValueError(f"{_OPTION} kubernetes: {error}; pip install 'atropos-agent[kubernetes]'") from error


_OURS: dict[str, Callable[..., Backend]] = {
    "docker": docker_backend,
    "kubernetes": kubernetes_backend,
    "local": LocalBackend,
}


def named_factory(name: str) -> Callable[..., Backend]:
    """Return the maker of the named backend. Raises ValueError, with the remedy, for an unknown name."""
    factory: Callable[..., Backend] = resolve(_OPTION, name, _OURS, "atropos_agent.sandboxes")
    if not callable(factory):
        raise ValueError(f"{_OPTION} {name}: this is not callable; name a class, or a function that returns a backend")
    return factory


def load_backend(name: str, **options: Any) -> Backend:
    """Make the named backend: "docker", "kubernetes", "local", an entry point, or your own "package.module:factory".

    factory: a class or a function with a `Backend` as its result; it is called with all options other than None.
    Raises ValueError, with the option's name and the remedy, for an unknown backend or a missing option.
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
