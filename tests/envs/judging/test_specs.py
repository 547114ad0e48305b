"""The two sandboxes of a rollout."""

from dataclasses import replace

import pytest
from verifier_samples import task

from envs.judging.specs import agent_spec, rollout_spec, verifier_spec
from sandboxes.base import Limits


@pytest.mark.docker
@pytest.mark.parametrize("capabilities", ["default", "none"])
async def test_the_agent_becomes_another_user_where_root_has_its_rights(
    docker_backend, base_image, tmp_path, capabilities
):
    sample = replace(task(tmp_path, ""), limits=Limits(capabilities=capabilities))
    async with docker_backend.open(agent_spec(sample, base_image)) as sandbox:
        tried = await sandbox.exec("setpriv --reuid=65534 --clear-groups true")
    assert tried.ok is (capabilities == "default")


def test_the_verifier_has_a_network_and_rights_of_its_own(tmp_path):
    sample = task(tmp_path, "", network=True)
    assert verifier_spec(sample, "i").limits.network
    assert not agent_spec(sample, "i").limits.network
    assert verifier_spec(sample, "i").switch_users
    assert not agent_spec(sample, "i").switch_users


def test_agents_alone_have_what_others_have_had(tmp_path):
    sample = task(tmp_path, "")
    assert rollout_spec(sample, "i") == replace(agent_spec(sample, "i"), shared="agents")
    assert verifier_spec(sample, "i").shared == agent_spec(sample, "i").shared == ""
