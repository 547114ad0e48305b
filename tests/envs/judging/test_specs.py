"""The two sandboxes of a rollout."""

from dataclasses import replace

import pytest
from chores import CHORES
from verifier_samples import task

from envs.judging.specs import agent_spec, rollout_spec, verifier_spec


def test_the_verifier_has_a_network_and_rights_of_its_own(tmp_path):
    sample = task(tmp_path, "", network=True)
    assert verifier_spec(sample, "i").limits.network
    assert not agent_spec(sample, "i").limits.network
    assert verifier_spec(sample, "i").switch_users
    assert not agent_spec(sample, "i").switch_users
    # Agents alone have what others have had.
    assert rollout_spec(sample, "i") == replace(agent_spec(sample, "i"), shared="agents")
    assert verifier_spec(sample, "i").shared == agent_spec(sample, "i").shared == ""
    assert rollout_spec(task(tmp_path, "", in_place=True), "i").shared == ""  # it is a verifier's, too


@pytest.mark.docker
async def test_root_does_its_usual_chores_in_the_verifiers_sandbox(docker_backend, base_image, tmp_path):
    """In an agent's sandbox: `tests/sandboxes/test_roots_rights.py`."""
    async with docker_backend.open(verifier_spec(task(tmp_path, ""), base_image)) as sandbox:
        for number, (chore, (command, printed)) in enumerate(CHORES.items()):
            done = await sandbox.exec(f"mkdir {number}; cd {number}; {command}", user="root")
            assert done.output.endswith(printed), f"{chore}: {done.output}"
