"""The life of a driver as its cluster sees it: a Lease that it renews, which owns its pods; the remains of dead drivers
are removed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from sandboxes.base import DaemonRefused, SandboxDied, SandboxError
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.owner import PREFIX, Owner
from sandboxes.remote.api import UNANSWERED

logger = logging.getLogger(__name__)

_GROUP = "coordination.k8s.io/v1"
_RENEW_S = 30.0
_LOOK_S = 60.0
_WATCH_S = 1.5 * _RENEW_S
"""How long a lease that seems too old is watched for a renewal: another machine's clock may be wrong."""
CLAIM_GROUP = "extensions.agents.x-k8s.io/v1beta1"
_OF_CLAIMS = ("sandboxclaims", "sandboxwarmpools", "sandboxtemplates")
LEASE_S = 180
"""Seconds without a renewal after which a driver is dead."""
_OUTAGE_S = 60.0


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@asynccontextmanager
async def hold_lease(cluster: Cluster, owner: Owner) -> AsyncIterator[Mapping[str, Any]]:
    """Hold a Lease for the block. Yields the reference by which it owns pods."""
    name = f"atropos-agent-{owner.id}"
    spec = {"holderIdentity": f"{owner.host}/{owner.pid}", "leaseDurationSeconds": LEASE_S, "renewTime": _now()}
    body = {
        "apiVersion": _GROUP,
        "kind": "Lease",
        "metadata": {"name": name, "labels": owner.labels()},
        "spec": spec,
    }
    made = await cluster.retry(lambda: cluster.request("POST", cluster.path("leases", group=_GROUP), body), _OUTAGE_S)
    renewing = asyncio.create_task(_renew(cluster, name), name="pods' lease")
    try:
        yield {"apiVersion": _GROUP, "kind": "Lease", "name": name, "uid": made["metadata"]["uid"]}
    finally:
        renewing.cancel()
        await _delete(cluster, name)


async def _renew(cluster: Cluster, name: str) -> None:
    path = cluster.path("leases", name, _GROUP)
    while True:
        await asyncio.sleep(_RENEW_S)
        try:
            # Read each time: an earlier renewal may have been done after all, and its answer lost.
            lease = await cluster.request("GET", path)
            await cluster.request("PUT", path, lease | {"spec": lease["spec"] | {"renewTime": _now()}})
        except UNANSWERED as error:
            logger.warning("The lease of this process's pods is not renewed: %r", error)


async def _delete(cluster: Cluster, name: str) -> None:
    try:
        path = cluster.path("leases", name, _GROUP)
        await cluster.retry(lambda: cluster.request("DELETE", path), _OUTAGE_S)
    except SandboxDied:
        return
    except SandboxError as error:
        logger.warning("%s stays for now: %s", name, error)


def selector(owner_id: str = "") -> str:
    return f"{PREFIX}owner" + (f"={owner_id}" if owner_id else "")


async def remove_pods(cluster: Cluster, owner_id: str) -> None:
    """Delete all pods of an owner and what would make others, and wait up to a minute until they are gone."""

    async def delete(path: str) -> None:
        await cluster.retry(lambda: cluster.request("DELETE", path, labelSelector=selector(owner_id)), _OUTAGE_S)

    pods = cluster.path("pods")
    for kind in _OF_CLAIMS:
        with suppress(SandboxDied, DaemonRefused):  # this cluster has no claims, or our driver had no right to make any
            await delete(cluster.path(kind, group=CLAIM_GROUP))
    await delete(pods)
    for _ in range(int(_OUTAGE_S)):
        left = await cluster.retry(
            lambda: cluster.request("GET", pods, labelSelector=selector(owner_id), limit="1"), _OUTAGE_S
        )
        if not left["items"]:
            return
        await asyncio.sleep(1.0)
    logger.warning("pods of %s are still being deleted", owner_id)


async def reap(cluster: Cluster) -> int:
    """Remove the pods of dead drivers, and their leases. Returns how many pods there were."""
    place = cluster.path("leases", group=_GROUP)
    # Pods first: a driver that starts meanwhile has its Lease before its first pod.
    pods = (await cluster.request("GET", cluster.path("pods"), labelSelector=selector()))["items"]
    leases = (await cluster.request("GET", place, labelSelector=selector()))["items"]
    renewed = {one["metadata"]["name"]: one["spec"].get("renewTime") for one in leases if _is_silent(one)}
    if renewed:
        logger.info("Watching for %g s whether %d drivers on other machines live", _WATCH_S, len(renewed))
        await asyncio.sleep(_WATCH_S)
        leases = (await cluster.request("GET", place, labelSelector=selector()))["items"]
    dead_leases = [one for one in leases if _is_dead(one) or _is_unchanged(one, renewed)]
    gone = {one["metadata"]["name"] for one in dead_leases}
    alive = {one["metadata"]["labels"][PREFIX + "owner"] for one in leases if one["metadata"]["name"] not in gone}
    doomed = [one["metadata"]["labels"][PREFIX + "owner"] for one in pods]
    dead = {owner for owner in doomed if owner not in alive}
    for owner_id in dead:
        await remove_pods(cluster, owner_id)
    for name in gone:
        await _delete(cluster, name)
    count = sum(owner in dead for owner in doomed)
    if count:
        logger.warning("Removed %d pods of %d dead drivers", count, len(dead))
    return count


async def reap_continuously(cluster: Cluster) -> None:
    """Remove the pods of drivers that die beside this one, until cancelled: they take room.

    A silence counts only while the API server answers: after an outage all have time to renew their leases.
    """
    place, seen = cluster.path("leases", group=_GROUP), dict[tuple[str, str], float]()
    while True:
        await asyncio.sleep(_LOOK_S)
        try:
            leases = (await cluster.request("GET", place, labelSelector=selector()))["items"]
            now = time.monotonic()
            renewals = [(one["metadata"]["name"], str(one["spec"].get("renewTime"))) for one in leases]
            seen = {renewal: seen.get(renewal, now) for renewal in renewals}
            if any(now - since > LEASE_S for since in seen.values()):
                await reap(cluster)
        except UNANSWERED as error:
            logger.debug("The leases of other drivers can't be seen: %r", error)
            seen = {}


def _owner(lease: Mapping[str, Any]) -> Owner | None:
    """Return a lease's driver, None if its labels are not ours."""
    try:
        return Owner.from_labels(lease["metadata"]["labels"])
    except (KeyError, ValueError):
        return None


def _is_dead(lease: Mapping[str, Any]) -> bool:
    """Return whether its driver is certainly gone, by /proc: it was a process of this host."""
    owner = _owner(lease)
    return owner is not None and owner.is_dead()


def _is_silent(lease: Mapping[str, Any]) -> bool:
    """Return whether its driver on another machine has not renewed it, by the clocks of both."""
    owner = _owner(lease)
    if owner is None or owner.is_dead() or owner.is_alive():
        return False
    renewed = datetime.fromisoformat(lease["spec"]["renewTime"].replace("Z", "+00:00"))
    silence = (datetime.now(UTC) - renewed).total_seconds()
    return silence > float(lease["spec"]["leaseDurationSeconds"])


def _is_unchanged(lease: Mapping[str, Any], renewed: Mapping[str, Any]) -> bool:
    """Return whether a lease that was silent has not been renewed since. renewed: when, by its name."""
    name = lease["metadata"]["name"]
    return name in renewed and renewed[name] == lease["spec"].get("renewTime")
