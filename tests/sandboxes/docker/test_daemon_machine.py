"""What the Docker daemon's word says of a container."""

import pytest

from sandboxes.docker.daemon_machine import ended_at, full


@pytest.mark.parametrize(
    ("code", "oom", "limit"),
    [(137, False, None), (137, True, "memory"), (70, False, "memory"), (2, False, "processes")],
)
def test_how_it_ended_names_the_limit(code, oom, limit):
    assert ended_at({"ExitCode": code, "OOMKilled": oom}) == limit


@pytest.mark.parametrize(
    ("stats", "limit"),
    [
        ([], None),
        ([{"memory_stats": {"limit": 100, "usage": 98}}], "memory"),
        ([{"memory_stats": {"limit": 100, "usage": 98, "stats": {"inactive_file": 20}}}], None),
        ([{"memory_stats": {"limit": 100, "usage": 98, "stats": {"total_active_file": 20}}}], None),
        ([{"pids_stats": {"limit": 5, "current": 5}}], "processes"),
    ],
)
def test_what_it_uses_names_the_limit(stats, limit):
    assert full(stats) == limit
