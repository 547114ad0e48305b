"""What a pod's status says: how it ended and by whose fault, or why it does not start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sandboxes.base import ImageMissing, SandboxDied, SandboxError
from sandboxes.docker.executor.program import ENDS

Pod = Mapping[str, Any]
BOX, LINK, WHO = "box", "link", "who"
"""Containers: the sandbox, its link to us, and the look at its image's user."""
_BESIDE_S = 30.0
_ABSENT = ("not found", "manifest unknown", "does not exist", "denied", "unauthorized", "forbidden", "not present")
_NODE_GONE = ("NodeLost", "NodeShutdown", "Shutdown", "Terminated", "NodeAffinity", "UnexpectedAdmissionError")
_NEVER = ("ErrImageNeverPull", "InvalidImageName")
_UNPULLED = ("ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "SignatureValidationFailed")
_UNSTARTED = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError")


class PodDeleted(SandboxDied):
    """Somebody else deleted the pod."""


class PodEvicted(SandboxDied):
    """The cluster took the pod away: eviction, preemption, a drained node."""


class NodeLost(SandboxDied):
    """The pod's node went away."""


class PodExpired(SandboxDied):
    """The pod lived longer than `deadline_s`."""


def container(pod: Pod, name: str) -> Mapping[str, Any]:
    """Return a container's status; an empty one before there is any."""
    status = pod.get("status", {})
    every = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
    return next((one for one in every if one["name"] == name), {})


def _state(pod: Pod, name: str, state: str) -> Mapping[str, Any]:
    return container(pod, name).get("state", {}).get(state) or {}


def condition(pod: Pod, kind: str) -> Mapping[str, Any]:
    conditions = pod.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), {})


def limit_of(pod: Pod | None) -> str | None:
    """Return the limit at which the sandbox's own programs have ended it; None without proof."""
    if pod is None:
        return None
    status, ended = pod.get("status", {}), _state(pod, BOX, "terminated")
    if status.get("reason") == "Evicted":
        return "disk" if _is_own_disk(status.get("message", "")) else None
    if disruption_reason(pod) or not ended:
        return None
    return "memory" if ended.get("reason") == "OOMKilled" else ENDS.get(ended.get("exitCode", 0))


def was_killed_during(pod: Pod, events: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the sandbox's container ended at the time of one of these events; both times are its node's."""
    ended = _time(_state(pod, BOX, "terminated").get("finishedAt"))
    latest = ((one.get("series") or {}).get("lastObservedTime") or one.get("lastTimestamp") for one in events)
    times = filter(None, map(_time, latest))
    return ended is not None and any(abs((time - ended).total_seconds()) <= _BESIDE_S for time in times)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _is_own_disk(message: str) -> bool:
    """Return whether an eviction is for the pod's own limit; a node short of disk is none of its fault."""
    return "ephemeral local storage usage exceeds" in message or "exceeds its local ephemeral storage limit" in message


def disruption_reason(pod: Pod) -> str:
    """Return the reason for which the cluster ends the pod, "" for none."""
    found = condition(pod, "DisruptionTarget")
    return str(found.get("reason", "DisruptionTarget")) if found.get("status") == "True" else ""


def end_error(pod: Pod | None) -> SandboxDied | None:
    """Return why the sandbox is gone, None if it is not."""
    if pod is None:
        return PodDeleted("its pod was deleted from outside")
    status, reason = pod.get("status", {}), disruption_reason(pod)
    message = status.get("message") or condition(pod, "DisruptionTarget").get("message") or "no message"
    why, ended = status.get("reason"), _state(pod, BOX, "terminated")
    silent = status.get("phase") == "Unknown" or condition(pod, "Ready").get("reason") == "NodeStatusUnknown"
    found: SandboxDied | None = None
    if reason == "DeletionByTaintManager" or why in _NODE_GONE or silent:
        found = NodeLost(f"its node is lost ({reason or why or 'silent'}): {message}")
    elif reason or why in ("Evicted", "Preempting"):
        found = PodEvicted(f"its pod was taken away ({reason or why}): {message}")
    elif why == "DeadlineExceeded":
        found = PodExpired(f"its pod lived longer than deadline_s: {message}")
    elif ended or status.get("phase") in ("Failed", "Succeeded"):
        how = f"{ended.get('reason', 'ended')}, exit code {ended.get('exitCode')}" if ended else f"{why}: {message}"
        found = SandboxDied(f"its process 1 has ended: {how}")
    elif pod["metadata"].get("deletionTimestamp"):
        found = PodDeleted("its pod is being deleted from outside")
    return found


def raise_unstartable(pod: Pod | None) -> None:
    """Raise ImageMissing or SandboxError if the pod can never start."""
    if (gone := end_error(pod)) is not None or pod is None:
        raise gone or PodDeleted("its pod was deleted from outside")
    for name in (WHO, BOX, LINK):
        waiting = _state(pod, name, "waiting")
        reason, message = waiting.get("reason", ""), str(waiting.get("message", ""))
        image = container(pod, name).get("image")
        if reason in _NEVER or (reason in _UNPULLED and any(word in message.lower() for word in _ABSENT)):
            raise ImageMissing(
                f"image {image} can't be had on the cluster's node ({reason}: {message}); build it and push it to a "
                "registry that the nodes reach; --env.pods.image_prefix and pull_secrets name one"
            )
        if reason in _UNSTARTED:
            raise SandboxError(f"the cluster can't start image {image}: {reason}: {message}")
        failed = _state(pod, name, "terminated")
        if failed.get("exitCode") and name != BOX:
            raise SandboxError(f"container {name} of the pod failed: {failed.get('reason')}: {failed.get('message')}")


def is_up(pod: Pod) -> bool:
    """Return whether both containers run."""
    return all(_state(pod, name, "running") for name in (BOX, LINK))


def describe_pending(pod: Pod | None) -> str:
    """Describe what a start waits for."""
    if pod is None:
        return "the cluster has not said"
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") != "True":
        return str(scheduled.get("message") or scheduled.get("reason") or "it is not scheduled")
    states = (_state(pod, name, "waiting") for name in (WHO, BOX, LINK))
    reasons = [f"{one.get('reason')}: {one.get('message', '')}" for one in states if one]
    return "; ".join(reasons) or "it runs"
