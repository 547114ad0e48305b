"""The two sandboxes of a rollout: the agent's, and the verifier's, where the agent never was."""

from __future__ import annotations

from dataclasses import replace

from envs.types import Task
from sandboxes.base import SandboxSpec


def agent_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox in which the agent, or the reference solution, works."""
    return SandboxSpec(image, workdir=task.workdir, env=task.env, user=task.user, limits=task.limits)


def verifier_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox in which the work is judged: same image, the image's own user, the verifier's network.

    Its root may become other users, so that a test.sh can run the judged code as nobody.
    """
    limits, hidden = task.limits, task.hidden
    if hidden.network is not None:
        limits = replace(limits, network=hidden.network, allowed_hosts=hidden.allowed_hosts)
    return SandboxSpec(image, workdir=task.workdir, env=task.env, limits=limits, switch_users=True)
