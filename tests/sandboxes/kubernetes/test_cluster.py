"""Answers of an API server as exceptions."""

import pytest

from sandboxes.base import DaemonRefused, SandboxDied, SandboxError

pytest.importorskip("kubernetes_asyncio")
cluster = pytest.importorskip("sandboxes.kubernetes.cluster")


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (401, "Unauthorized", DaemonRefused),
        (403, "pods is forbidden: User cannot create", DaemonRefused),
        (403, 'pods "a" is forbidden: exceeded quota: boxes', cluster.QuotaExceeded),
        (404, "not found", SandboxDied),
        (409, "already exists", cluster.Conflict),
        (410, "too old resource version", cluster.Expired),
        (422, "is invalid", SandboxError),
        (429, "too many requests", cluster.Busy),
        (500, "etcdserver: leader changed", cluster.Busy),
    ],
)
def test_each_refusal_is_told_apart(status, message, error):
    assert type(cluster.failure(status, message, "POST pods")) is error
