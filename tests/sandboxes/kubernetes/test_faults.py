"""Each status was recorded on a real cluster."""

import pytest

from sandboxes.base import ImageMissing, SandboxDied, SandboxError
from sandboxes.kubernetes.faults import (
    NodeLost,
    PodDeleted,
    PodEvicted,
    PodExpired,
    end_error,
    is_up,
    limit_of,
    raise_unstartable,
)

TAINTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager", "message": "not tolerated"}
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "preempted"}
FULL_DISK = "Pod ephemeral local storage usage exceeds the total limit of containers 60Mi. "
NODE_SHORT = "The node was low on resource: ephemeral-storage. Container box was using 300Mi"


def pod(phase="Running", box=None, deleted=False, **status):
    every = [
        {"name": "box", "image": "debian", "state": box or {"running": {"startedAt": "now"}}},
        {"name": "link", "state": {"running": {"startedAt": "now"}}},
    ]
    metadata = {"name": "p"} | ({"deletionTimestamp": "2026-11-26T00:00:00Z"} if deleted else {})
    return {"metadata": metadata, "status": {"phase": phase, "containerStatuses": every, **status}}


def ended(code, reason="Error"):
    return {"terminated": {"exitCode": code, "reason": reason}}


@pytest.mark.parametrize(
    ("shown", "end", "limit"),
    [
        (None, PodDeleted, None),
        (pod(deleted=True), PodDeleted, None),
        (pod("Failed", reason="Evicted", message=FULL_DISK), PodEvicted, "disk"),
        (pod("Failed", reason="Evicted", message=NODE_SHORT), PodEvicted, None),
        (pod("Failed", ended(137), conditions=[PREEMPTED]), PodEvicted, None),
        (pod("Failed", ended(137), conditions=[TAINTED]), NodeLost, None),
        (pod("Unknown"), NodeLost, None),
        (pod("Failed", ended(137), reason="DeadlineExceeded"), PodExpired, None),
        (pod("Failed", ended(137, "OOMKilled")), SandboxDied, "memory"),
        (pod("Failed", ended(70)), SandboxDied, "memory"),
        (pod("Failed", ended(139)), SandboxDied, "executor"),
        (pod("Failed", ended(137)), SandboxDied, None),
        (pod("Succeeded", ended(0, "Completed")), SandboxDied, None),
        (pod("Running", ended(137, "OOMKilled")), SandboxDied, "memory"),
    ],
)
def test_an_end_is_told_apart_and_blamed_on_programs_only_with_proof(shown, end, limit):
    assert type(end_error(shown)) is end
    assert limit_of(shown) == limit


def test_a_running_pod_has_no_end():
    assert end_error(pod()) is None
    assert limit_of(pod()) is None
    assert is_up(pod())


def waiting(reason, message=""):
    return pod("Pending", {"waiting": {"reason": reason, "message": message}})


def test_an_absent_image_is_named_with_the_remedy():
    with pytest.raises(ImageMissing, match="push it to a registry"):
        raise_unstartable(waiting("ErrImagePull", "manifest unknown"))
    with pytest.raises(ImageMissing):
        raise_unstartable(waiting("ErrImageNeverPull"))


def test_a_registry_that_is_away_is_waited_for():
    raise_unstartable(waiting("ImagePullBackOff", "dial tcp: i/o timeout"))
    raise_unstartable(waiting("ContainerCreating"))


def test_a_container_that_can_never_start_is_an_error_of_ours():
    with pytest.raises(SandboxError, match="CreateContainerConfigError"):
        raise_unstartable(waiting("CreateContainerConfigError", "no secret"))
