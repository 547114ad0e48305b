"""Examine whether a cluster lets a driver have sandboxes in pods: each finding is a sentence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from sandboxes.base import DaemonRefused, SandboxDied, SandboxError
from sandboxes.kubernetes.claims import check_controller
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.guard import choose_guard
from sandboxes.kubernetes.life import CLAIM_GROUP
from sandboxes.kubernetes.manifest import executor_map
from sandboxes.kubernetes.options import PodOptions
from sandboxes.kubernetes.pod import NODES
from sandboxes.owner import Owner
from sandboxes.patience import patiently

Rights = Mapping[tuple[str, str], tuple[str, ...]]
MANIFEST = "docs/kubernetes/pods-rbac.yaml"
RIGHTS: Rights = {
    ("", "pods"): ("create", "get", "list", "watch", "delete", "deletecollection"),
    ("", "pods/exec"): ("create", "get"),
    ("", "configmaps"): ("create",),
    ("networking.k8s.io", "networkpolicies"): ("create",),
    ("coordination.k8s.io", "leases"): ("create", "get", "list", "update", "delete"),
}
"""Needed verbs by API group and resource, as `MANIFEST` grants them."""
CLAIM_MANIFEST = "docs/kubernetes/claims-rbac.yaml"
_CLAIMS = CLAIM_GROUP.partition("/")[0]
CLAIM_RIGHTS: Rights = {
    (_CLAIMS, "sandboxclaims"): ("create", "get", "list", "watch", "patch", "delete", "deletecollection"),
    (_CLAIMS, "sandboxwarmpools"): ("create", "delete", "deletecollection"),
    (_CLAIMS, "sandboxtemplates"): ("create", "get", "delete", "deletecollection"),
}
"""The same for warm pools, as `CLAIM_MANIFEST` grants them."""
EVENT_MANIFEST = "docs/kubernetes/events-rbac.yaml"
EVENT_RIGHTS: Rights = {("", "events"): ("list",)}
"""The same for events of nodes, in `NODES`. Sandboxes can be had without it."""
_REVIEW = "authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Finding:
    """One examined thing. ok: whether sandboxes can be had, as far as this goes."""

    name: str
    ok: bool
    text: str


async def examine(options: PodOptions) -> AsyncIterator[Finding]:
    """Examine a cluster without changing it: its answer, each right, the namespace, the guard of networks, and whether
    its nodes' events can be read."""
    about = "cluster"
    try:
        async with Cluster.connect(options) as cluster:
            question = cluster.request("GET", "/version")
            version = (await patiently(question, f"The API server at {cluster.url}")).get("gitVersion")
            if version is None:
                yield Finding(about, False, f"{cluster.url} answers, but names no version of Kubernetes")
                return
            yield Finding(about, True, f"Kubernetes {version} answers at {cluster.url}")
            about = "rights"
            for manifest, rights in [(MANIFEST, RIGHTS), (CLAIM_MANIFEST, CLAIM_RIGHTS)][: 2 if options.warm else 1]:
                missing = await _missing_rights(cluster, rights, cluster.namespace)
                for right in missing:
                    text = f"you may not {right} in namespace {cluster.namespace}; {manifest} grants it"
                    yield Finding(about, False, text)
                if not missing:
                    yield Finding(about, True, f"all {sum(map(len, rights.values()))} of {manifest} are granted")
            if options.warm:
                about = "warm pools"
                await check_controller(cluster)
            about = "namespace"
            namespace = await _namespace(cluster, options)
            yield namespace
            if not namespace.ok:
                return
            about = "networks"
            reference = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "name": "atropos-trial",
                "uid": "trial",
            }
            guard = await choose_guard(cluster, options, Owner.of_this_process(), reference, dryRun="All")
            yield Finding(about, True, guard.text)
            about = "nodes"
            read = (
                "can't be read, so a pod that dies of one counts as at its own limit; " + EVENT_MANIFEST + " grants it"
            )
            if not await _missing_rights(cluster, EVENT_RIGHTS, NODES):
                read = "can be read"
            yield Finding(about, True, f"their events of memory that ran out {read}")
    except SandboxError as error:
        yield Finding(about, False, str(error))


async def _missing_rights(cluster: Cluster, rights: Rights, namespace: str) -> list[str]:
    """Return the rights that this user lacks in a namespace, such as "create pods/exec"."""

    async def granted(group: str, resource: str, verb: str) -> bool:
        kind, _, part = resource.partition("/")
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": kind, "subresource": part}
        review = {
            "apiVersion": _REVIEW,
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await cluster.request("POST", f"/apis/{_REVIEW}/selfsubjectaccessreviews", review)
        return bool(answer.get("status", {}).get("allowed"))

    every = [(group, resource, verb) for (group, resource), verbs in rights.items() for verb in verbs]
    found = await asyncio.gather(*(granted(*one) for one in every))
    return [f"{verb} {resource}" for (_, resource, verb), has in zip(every, found, strict=True) if not has]


async def _namespace(cluster: Cluster, options: PodOptions) -> Finding:
    name = cluster.namespace
    try:
        await cluster.ensure(cluster.path("configmaps"), executor_map(options), dryRun="All")
    except SandboxDied:
        text = f"the cluster has no namespace {name}; name another with --env.pods.namespace, or make it as {MANIFEST}"
        return Finding("namespace", False, text)
    except DaemonRefused as error:
        return Finding("namespace", False, str(error))
    return Finding("namespace", True, f"{name} is there")
