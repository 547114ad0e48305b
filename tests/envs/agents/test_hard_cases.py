"""What real agents do with replies that are spoiled and with answers that are cut: each token is trained or counted."""

import pytest
from images import made
from real_agents import SPOILED, Does, Spoils, at_work, end_of

from atropos_agent.types import StopReason
from envs.agents.naming import FOREIGN

pytestmark = [
    *(pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)),
    pytest.mark.parametrize("agent", FOREIGN),
]
ENDS = (StopReason.SUBMITTED, StopReason.ANSWERED, StopReason.BROKE_OFF)


@pytest.fixture
async def image(agent, base_image):
    """OpenHands needs Python 3.12."""
    return await made("trixie", base_image) if FOREIGN[agent].recipe.least_python == "3.12" else base_image


@pytest.mark.parametrize("spoiled", SPOILED)
async def test_it_goes_on_or_ends_behind_a_reply_that_is_spoiled(docker_backend, image, agent, hermes, spoiled):
    script = [Does("echo hi >/app/f"), *SPOILED[spoiled], end_of(agent)[0]]
    async with at_work(docker_backend, image, agent, hermes, script) as worked:
        assert worked.result.stop_reason in ENDS
        assert (await worked.sandbox.exec("cat /app/f")).output == "hi\n"


async def test_calls_are_spoiled_in_a_models_own_format(docker_backend, image, agent, native):
    script = [Does("echo hi >/app/f"), Spoils("broken"), *SPOILED["an unknown tool"], Spoils("cut"), end_of(agent)[0]]
    async with at_work(docker_backend, image, agent, native, script) as worked:
        assert worked.result.stop_reason in ENDS


@pytest.mark.parametrize("cut", [0, 1, 150, -1], ids=["no byte", "a byte", "150 bytes", "all but one byte"])
async def test_an_answer_that_was_cut_is_told_again_and_not_sampled_again(docker_backend, image, agent, hermes, cut):
    end, reason = end_of(agent)
    script = [Does("echo hi >/app/f", content="I write."), Does("cat /app/f"), end]
    async with at_work(docker_backend, image, agent, hermes, script, cuts=[None, cut, None, cut]) as worked:
        prompts = [tuple(one.prompt) for one in worked.exchanges]
        assert len(set(prompts)) == len(prompts), "nothing is sampled twice"
    if worked.result.stop_reason == reason:
        branches, changes = worked.told["branches"], worked.told["changes"]
        # Qwen Code takes an answer that ends early for its end, and asks no more.
        assert branches["main"] + (branches.get("untaken", 0) if agent == "qwen-code" else 0) == 3
        # OpenCode runs a call before it sees that its answer was cut, and may tell both attempts from then on.
        assert len(worked.result.segments) == 1 + (changes.get("edited", 0) if agent == "opencode" else 0)
