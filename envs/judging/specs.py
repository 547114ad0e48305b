"""The two sandboxes of a rollout: the agent's, and the verifier's, where the agent never was."""

from __future__ import annotations

from dataclasses import replace

from envs.types import Task, VerifierImage
from sandboxes.base import SandboxSpec


def agent_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox in which the agent, or the reference solution, works."""
    return SandboxSpec(image, workdir=task.workdir, env=task.env, user=task.user, limits=task.limits)


def rollout_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox in which a rollout's agent works. Agents of other rollouts may have had it, and nobody else.

    What the kernel goes on counting there tells of no more than they did; of a verifier's it could tell the next one's
    code which of the tests' values are decoys, so each verifier's is its own.
    """
    return replace(agent_spec(task, image), shared="agents")


def verifier_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox in which the work is judged: the image's own user, the verifier's network.

    image: the verifier's, which is the task's unless it has another.

    Its root may become other users, so that a test.sh can run the judged code as nobody.
    """
    hidden = task.hidden
    own = hidden.own or VerifierImage(workdir=task.workdir, env=task.env, limits=task.limits)
    limits = own.limits
    if hidden.own is None and hidden.network is not None:
        limits = replace(limits, network=hidden.network, allowed_hosts=hidden.allowed_hosts)
    return SandboxSpec(image, workdir=own.workdir, env=own.env, limits=limits, switch_users=True)
