"""The two sandboxes of a rollout: the agent's, and the verifier's. The agent never was in the latter."""

from __future__ import annotations

from dataclasses import replace

from envs.types import Task, VerifierImage
from sandboxes.base import SandboxSpec


def agent_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox for the work of the agent, or of the reference solution."""
    return SandboxSpec(image, workdir=task.workdir, env=task.env, user=task.user, limits=task.limits)


def rollout_spec(task: Task, image: str) -> SandboxSpec:
    """Return the sandbox for the work of a rollout's agent. Agents of other rollouts may have had it, and nobody else.

    The kernel's counters there tell of no more than they did; those of a verifier could tell the next one's
    code the decoys among the tests' values, so each verifier's is its own.
    """
    return replace(agent_spec(task, image), shared="" if task.hidden.in_place else "agents")


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
