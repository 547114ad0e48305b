"""Pods that stand ready in warm pools of agent-sandbox (kubernetes-sigs): each sandbox claims one."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from sandboxes.base import DaemonUnavailable, SandboxDied, SandboxError
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.program import LEASE_S
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.faults import Pod, PodDeleted, PodExpired, condition
from sandboxes.kubernetes.life import CLAIM_GROUP, selector
from sandboxes.kubernetes.starter import PodStarter
from sandboxes.kubernetes.watch import PodWatch
from sandboxes.remote.backend import RENEWALS
from sandboxes.shielding import await_shared, run_concurrently

logger = logging.getLogger(__name__)

_ANSWER_S = 60.0
"""How long a claim may have no sandbox, not even one that starts."""
_READY = 32
"""Pods that stand ready, of all kinds together."""
_RENEW_S = LEASE_S / 5
_TEMPLATES, _POOLS, _CLAIMS = "sandboxtemplates", "sandboxwarmpools", "sandboxclaims"
_KINDS = {_TEMPLATES: "SandboxTemplate", _POOLS: "SandboxWarmPool", _CLAIMS: "SandboxClaim"}
_REFUSED = ("InvalidMetadata", "EnvVarsInjectionRejected", "VolumeClaimTemplatesError")
_ENDS: Mapping[str, type[SandboxError]] = {"ClaimExpired": PodExpired, **dict.fromkeys(_REFUSED, SandboxError)}


async def check_controller(cluster: Cluster) -> None:
    """Raise DaemonUnavailable if the cluster has no SandboxClaim of this version, DaemonRefused without the right."""
    try:
        await cluster.request("GET", cluster.path(_CLAIMS, group=CLAIM_GROUP), limit="1")
    except SandboxDied as error:
        raise DaemonUnavailable(
            f"--env.pods.warm: the cluster has no SandboxClaim of {CLAIM_GROUP}; install agent-sandbox with its "
            "extensions, or leave the option away"
        ) from error


class ClaimStarter(PodStarter):
    """Claims pods of warm pools. Each kind of sandbox has a template and a pool, both this driver's."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        claims = self._cluster.path(_CLAIMS, group=CLAIM_GROUP)
        self._claims = PodWatch(self._cluster, selector(self._owner.id), claims)
        self._pools: OrderedDict[Kind, asyncio.Task[str]] = OrderedDict()
        self._users: dict[str, Kind] = {}
        """By claim."""

    async def run(self) -> None:
        """Follow the claims, and prolong those that are used: without this the cluster removes them."""
        await asyncio.gather(self._claims.run(), self._renew_claims())

    async def _renew_claims(self) -> None:
        turn = asyncio.Semaphore(RENEWALS)

        async def renew(name: str) -> None:
            with suppress(SandboxError):  # the next caller gets this error
                async with turn:
                    await self._cluster.request("PATCH", self._object_path(name), {"spec": {"lifecycle": _lifecycle()}})

        while True:
            await asyncio.sleep(_RENEW_S)
            await run_concurrently(map(renew, [*self._users]))

    def _object_path(self, name: str) -> str:
        return self._cluster.path(_CLAIMS, name, CLAIM_GROUP)

    async def _acquire_pod(self, name: str, kind: Kind) -> str:
        """Claim a pod, and return its name: the pool's, or of one that starts because the pool is empty."""
        self._users[name] = kind
        pool = await self._pool(kind)
        await self._make(_CLAIMS, name, {"warmPoolRef": {"name": pool}, "lifecycle": _lifecycle()})
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._claims.wait_for(name, _sandbox_name)
        except TimeoutError as error:
            if isinstance(error, SandboxError):
                raise
            self._pools.pop(kind, None)  # somebody may have removed it; the next start makes another
            late = f"claim {name} got no sandbox within {_ANSWER_S:g} s"
            if condition(self._claims.last_state(name) or {}, "Ready"):
                raise SandboxError(f"{late}: {self._describe_wait(name)}") from error
            raise DaemonUnavailable(f"{late}, and no answer; does agent-sandbox run, with --extensions?") from error

    def _describe_wait(self, name: str) -> str:
        ready = condition(self._claims.last_state(name) or {}, "Ready")
        return f"{super()._describe_wait(name)}; its claim: {ready.get('reason')}: {ready.get('message')}"

    async def _remove(self, name: str) -> None:
        await super()._remove(name)
        self._claims.forget(name)
        self._users.pop(name, None)

    async def _pool(self, kind: Kind) -> str:
        """Return the name of the kind's pool. It is made at the first sandbox, in the place of unused older ones."""
        if kind not in self._pools:
            unused = [one for one in self._pools if one not in self._users.values()]
            for old in unused[: max(0, len(self._pools) + 1 - _READY // self._options.warm)]:
                await self._drop(self._pools.pop(old))
        making = self._pools.get(kind)
        if making is None or (making.done() and making.exception()):
            making = self._pools[kind] = asyncio.create_task(self._make_pool(kind), name="pool of pods")
        self._pools.move_to_end(kind)
        return await await_shared(making)

    async def _make_pool(self, kind: Kind) -> str:
        name = f"atropos-{self._owner.id}-pool-{next(self._numbers)}"
        pool = {"replicas": self._options.warm, "sandboxTemplateRef": {"name": name}}
        await self._make(_TEMPLATES, name, await self._template(kind))
        await self._make(_POOLS, name, pool)
        return name

    async def _template(self, kind: Kind) -> Mapping[str, Any]:
        """Return the template of a kind's pods, which take what they don't set from the user's template."""
        theirs: Mapping[str, Any] = {}
        if name := self._options.sandbox_template:
            path = self._cluster.path(_TEMPLATES, name, CLAIM_GROUP)
            try:
                theirs = (await self._cluster.request("GET", path))["spec"]["podTemplate"]["spec"]
            except SandboxDied as error:
                raise SandboxError(f"--env.pods.sandbox_template {name}: the cluster has none of that name") from error
        body = self._pod("", kind, asks_user=True, lease_s=0)  # in the pool it has no driver
        metadata, ours = body["metadata"], body["spec"]
        del ours["activeDeadlineSeconds"]  # it would count from its start in the pool
        for each in ("tolerations", "imagePullSecrets"):
            ours[each] = [*ours[each], *theirs.get(each, ())]
        ours["nodeSelector"] = {**theirs.get("nodeSelector", {}), **ours["nodeSelector"]}
        pod = {"metadata": {one: metadata[one] for one in ("labels", "annotations")}, "spec": {**theirs, **ours}}
        # The controller's own policies open networks, and policies add up.
        return {"podTemplate": pod, "networkPolicyManagement": "Unmanaged", "service": False}

    async def _make(self, plural: str, name: str, spec: Mapping[str, Any]) -> None:
        metadata = {"name": name, "labels": self._owner.labels(), "ownerReferences": [dict(self._reference)]}
        body = {"apiVersion": CLAIM_GROUP, "kind": _KINDS[plural], "metadata": metadata, "spec": spec}
        await self._create(self._cluster.path(plural, name, CLAIM_GROUP), body)

    async def _drop(self, pool: asyncio.Task[str]) -> None:
        try:
            for plural in (_POOLS, _TEMPLATES):
                await self._cluster.request("DELETE", self._cluster.path(plural, await pool, CLAIM_GROUP))
        except SandboxError as error:
            logger.warning("a pool stays until the end of the run: %s", error)


def _lifecycle() -> dict[str, str]:
    until = datetime.now(UTC) + timedelta(seconds=LEASE_S)
    return {"shutdownTime": until.strftime("%Y-%m-%dT%H:%M:%SZ"), "shutdownPolicy": "Delete"}


def _sandbox_name(claim: Pod | None) -> str | None:
    """Return the sandbox's name, which is its pod's. Raises SandboxError if there will be none."""
    if claim is None:
        raise PodDeleted("its claim was deleted from outside")
    ready = condition(claim, "Ready")
    if ended := _ENDS.get(ready.get("reason", "")):
        raise ended(f"its claim: {ready['reason']}: {ready.get('message')}")
    return (claim.get("status", {}).get("sandbox") or {}).get("name") or None
