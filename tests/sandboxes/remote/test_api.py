"""Answers of a server as exceptions."""

import pytest

from sandboxes.base import DaemonRefused, SandboxDied, SandboxError
from sandboxes.remote import api


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (401, "Unauthorized", DaemonRefused),
        (403, "pods is forbidden: User cannot create", DaemonRefused),
        (403, 'pods "a" is forbidden: exceeded quota: boxes', api.QuotaExceeded),
        (404, "not found", SandboxDied),
        (409, "already exists", api.Conflict),
        (410, "too old resource version", api.Expired),
        (422, "is invalid", SandboxError),
        (429, "too many requests", api.Busy),
        (500, "etcdserver: leader changed", api.Busy),
    ],
)
def test_each_refusal_is_told_apart(status, message, error):
    assert type(api.failure(status, message, "POST pods")) is error
