"""The two sandboxes of a rollout."""

import pytest
from verifier_samples import task

from envs.judging.specs import agent_spec, verifier_spec


@pytest.mark.docker
async def test_the_agent_cannot_become_another_user(docker_backend, base_image, tmp_path):
    async with docker_backend.open(agent_spec(task(tmp_path, ""), base_image)) as sandbox:
        tried = await sandbox.exec("setpriv --reuid=65534 --clear-groups true")
    assert not tried.ok


def test_the_verifier_has_a_network_and_rights_of_its_own(tmp_path):
    sample = task(tmp_path, "", network=True)
    assert verifier_spec(sample, "i").limits.network
    assert not agent_spec(sample, "i").limits.network
    assert verifier_spec(sample, "i").switch_users
    assert not agent_spec(sample, "i").switch_users
