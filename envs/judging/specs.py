"""The two sandboxes of a rollout: the agent's, and the verifier's. The agent never was in the latter."""

from __future__ import annotations

from dataclasses import replace

from envs.types import Service, Task, VerifierImage
from sandboxes.base import Sandbox, SandboxSpec

_START = """"$@" < /dev/null > /dev/null 2>&1 &
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    case $(tr '\\0' ' ' 2> /dev/null < /proc/$!/cmdline) in "" | sleep* | "sh -c sleep "*) break ;; esac
    sleep 0.1
done"""
"""Runs a program beside the commands to come, and waits up to 2 s until it has become its own command."""


def agent_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox for the work of the agent, or of the reference solution."""
    return SandboxSpec(image, workdir=task.workdir, env=task.env, user=task.user, limits=task.limits)


def rollout_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox for the work of a rollout's agent. Agents of other rollouts may have had it, and nobody else.

    The kernel's counters there tell of no more than they did; those of a verifier could tell the next one's
    code the decoys among the tests' values, so each verifier's is its own.
    """
    return replace(agent_spec(task, image), shared="agents")


def verifier_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox for the judging of the work: the image's own user, the verifier's network.

    image: the verifier's, by default the task's.

    Its root may become other users, so a test.sh can run the judged code as nobody.
    """
    hidden = task.hidden
    own = hidden.own or VerifierImage(workdir=task.workdir, env=task.env, limits=task.limits)
    limits = own.limits
    if hidden.own is None and hidden.network is not None:
        limits = replace(limits, network=hidden.network, allowed_hosts=hidden.allowed_hosts)
    return SandboxSpec(image, workdir=own.workdir, env=own.env, limits=limits, switch_users=True)


async def start_service(sandbox: Sandbox, service: Service | None) -> None:
    """Start what a container runs from its start. What fails there, the tests will show. Raises SandboxError."""
    if service is not None:
        await sandbox.exec(["sh", "-c", _START, "sh", *service.command], user=service.user)
