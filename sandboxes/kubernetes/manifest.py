"""The manifests: a sandbox's pod, its executor's ConfigMap, the policy against networks."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.program import CAPABILITIES, LEASE_S, executor_arguments, program_for, root_capabilities
from sandboxes.kubernetes.faults import BOX, LINK, WHO
from sandboxes.kubernetes.options import PodOptions
from sandboxes.owner import PREFIX

NO_NETWORK = "atropos-agent-no-network"
SOCKET = "atropos"
"""The name of process 1's socket, in the pod's own network namespace."""
_PLACE = "/.atropos"
PROGRAM = f"{_PLACE}/executor"
_TREES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID")
_UNTRACED = ("AUDIT_WRITE",)
"""Held by programs of ours that run in the sandbox's container, and by no command: so no command can trace them."""
_SHM_MB = 64
_MARGIN_MB = 64
"""A file meets its own limit before the pod meets its, at which the cluster takes the pod away."""


def executor_map(options: PodOptions) -> dict[str, Any]:
    """Return the ConfigMap with the executor, named after its content."""
    program = program_for(options.architecture)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"atropos-agent-executor-{hashlib.sha256(program).hexdigest()[:12]}"},
        "immutable": True,
        "binaryData": {"executor": base64.b64encode(program).decode()},
    }


def no_network_policy() -> dict[str, Any]:
    """Return the policy that closes the network of pods without one, where the cluster enforces policies."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": NO_NETWORK},
        "spec": {
            "podSelector": {"matchLabels": {PREFIX + "network": "none"}},
            "policyTypes": ["Ingress", "Egress"],
        },
    }


def pod(
    name: str,
    kind: Kind,
    options: PodOptions,
    labels: Mapping[str, str],
    owner: Mapping[str, Any],
    *,
    takes_down: bool,
    asks_user: bool,
    lease_s: int = LEASE_S,
) -> dict[str, Any]:
    """Return a sandbox's pod.

    owner: the reference to the object with which the cluster removes it. takes_down: its link takes the network
    down. asks_user: it starts with a look at its image's user. lease_s: how long it lives without its driver.
    """
    image = options.image_prefix + kind.image
    common = {
        "image": image,
        "imagePullPolicy": options.pull_policy,
        "volumeMounts": [{"name": "executor", "mountPath": _PLACE, "readOnly": True}],
    }
    small = {"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    shm = {"name": "shm", "mountPath": "/dev/shm"}
    kept = dict.fromkeys((*CAPABILITIES, *_TREES, *root_capabilities(kind), *_UNTRACED))
    box = {
        **common,
        "name": BOX,
        "command": [PROGRAM, f"link={SOCKET}", *executor_arguments(kind, lease_s)],
        "volumeMounts": [*common["volumeMounts"], shm],
        "resources": _resources(kind, options),
        "securityContext": _security_context(kept),
    }
    link = {
        **common,
        "name": LINK,
        "command": [PROGRAM, "keep", SOCKET],
        "resources": small,
        "securityContext": _security_context(["NET_ADMIN"] if takes_down else []) | {"readOnlyRootFilesystem": True},
    }
    secured = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    who = {**common, "name": WHO, "command": [PROGRAM, "who"], "resources": small, "securityContext": secured}
    network = "yes" if kind.limits.network else "none"
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": options.deadline_s,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [who] if asks_user else [],
        "containers": [box, link],
        "nodeSelector": {"kubernetes.io/arch": options.architecture, **options.node_selector},
        "tolerations": options.tolerations,
        "imagePullSecrets": [{"name": secret} for secret in options.pull_secrets],
        "volumes": [
            {
                "name": "executor",
                "configMap": {"name": executor_map(options)["metadata"]["name"], "defaultMode": 0o555},
            },
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{_SHM_MB}Mi"}},
        ],
        **({"runtimeClassName": options.runtime_class} if options.runtime_class else {}),
        **({"priorityClassName": options.priority_class} if options.priority_class else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {**labels, PREFIX + "network": network},
            "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
            "ownerReferences": [dict(owner)],
        },
        "spec": spec,
    }


def _security_context(capabilities: Any) -> dict[str, Any]:
    added = {"add": list(capabilities)} if capabilities else {}
    return {
        "runAsUser": 0,
        "runAsGroup": 0,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], **added},
    }


def _resources(kind: Kind, options: PodOptions) -> dict[str, Any]:
    limits = kind.limits
    return {
        "limits": {
            "cpu": f"{round(limits.cpus * 1000)}m",
            "memory": f"{limits.memory_mb}Mi",
            "ephemeral-storage": f"{limits.disk_mb + _MARGIN_MB}Mi",
        },
        "requests": {
            "cpu": f"{max(1, round(limits.cpus * 1000 * options.cpu_share))}m",
            "memory": f"{max(1, round(limits.memory_mb * options.memory_share))}Mi",
            "ephemeral-storage": f"{_MARGIN_MB}Mi",
        },
    }
