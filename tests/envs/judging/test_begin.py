"""The beginning of a task's container."""

import pytest

from envs.judging.begin import begin, examine
from envs.types import HealthCheck, InfraError, Service, Task
from sandboxes.base import ExecResult


class Sandbox:
    """Notes commands; health checks end with the given statuses, and then with 0."""

    def __init__(self, *statuses):
        self.left, self.ran = list(statuses), []

    async def exec(self, command, **options):
        self.ran.append((command[-1], options["user"]))
        return ExecResult(self.left.pop(0) if command[0] == "bash" and self.left else 0, b"not yet")


@pytest.mark.parametrize(
    ("statuses", "grace_s", "retries", "passes"),
    [((), 0, 1, True), ((1, 1), 0, 3, True), ((1, 1, 1), 0, 3, False), ((1, 1, 1), 60, 1, True), ((1,), 0, 0, False)],
)
async def test_a_health_check_is_tried_again_until_it_passes_or_has_failed_too_often(
    statuses, grace_s, retries, passes
):
    check = HealthCheck("curl x", "web", interval_s=0, grace_s=grace_s, grace_interval_s=0, retries=retries)
    sandbox = Sandbox(*statuses)
    problem = await examine(sandbox, check)
    assert problem == (None if passes else "its health check 'curl x' ended with 1: not yet")
    assert set(sandbox.ran) == {("curl x", "web")}


async def test_a_service_is_started_before_the_health_check_which_may_end_the_beginning():
    task = Task("t", "x", service=Service(("serve", "80"), "web"), health=HealthCheck("up", interval_s=0))
    sandbox = Sandbox()
    await begin(sandbox, task)
    assert sandbox.ran == [("80", "web"), ("up", None)]
    with pytest.raises(InfraError, match="task t can't begin: its health check 'up' ended with 1"):
        await begin(Sandbox(1, 1, 1), task)
