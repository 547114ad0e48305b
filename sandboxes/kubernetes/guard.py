"""How networks of pods are closed: by their own namespace, or by the cluster's policies alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sandboxes.base import DaemonRefused, Limits
from sandboxes.docker.executor.container import Kind
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.manifest import no_network_policy, pod
from sandboxes.kubernetes.options import PodOptions
from sandboxes.owner import Owner
from sandboxes.remote.api import QuotaExceeded

_POLICIES = "networking.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Guard:
    """A way to close networks. text: a sentence for the user."""

    takes_down: bool
    text: str
    probes: tuple[str, ...] = ()


async def choose_guard(
    cluster: Cluster, options: PodOptions, owner: Owner, reference: Mapping[str, Any], **params: str
) -> Guard:
    """Choose how networks are closed, and make the NetworkPolicy. Raises DaemonRefused if no way can be had.

    params: of the request for the policy."""
    refusal: DaemonRefused | None = None
    try:
        await cluster.ensure(cluster.path("networkpolicies", group=_POLICIES), no_network_policy(), **params)
    except DaemonRefused as error:
        refusal = error
    why = "--env.pods.network_off says so"
    if options.network_off != "policy":
        trial = pod(
            *("atropos-trial", Kind("trial", Limits(), False), options, owner.labels(), reference),
            takes_down=True,
            asks_user=False,
        )
        try:
            with suppress(QuotaExceeded):  # quotas are checked last: it is admitted once there is room
                await cluster.request("POST", cluster.path("pods"), trial, dryRun="All")
        except DaemonRefused as error:
            if options.network_off == "namespace" or "PodSecurity" not in str(error):
                raise
            why = str(error)
        else:
            text = "pods without a network have theirs taken down; a NetworkPolicy stands behind this"
            return Guard(takes_down=True, text=text)
    if refusal is not None:
        raise refusal
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    probes = (*options.network_probe, *([f"{host}:{port}"] if host else []))
    tried = ", ".join(("their node's kubelet", *probes))
    text = f"pods keep their network namespace, and NetworkPolicy closes it; each start tries {tried} ({why})"
    return Guard(takes_down=False, text=text, probes=probes)
