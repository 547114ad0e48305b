"""What real agents do with replies that are spoiled and with answers that are cut: each token is trained or counted."""

import pytest
from images import made
from real_agents import SPOILED, Spoils, Writes, at_work, end_of

from atropos_agent.types import StopReason
from envs.agents.naming import FOREIGN

pytestmark = [
    *(pytest.mark.slow, pytest.mark.docker, pytest.mark.timeout(900)),
    pytest.mark.parametrize("agent", FOREIGN),
]
ENDS = (StopReason.SUBMITTED, StopReason.ANSWERED, StopReason.BROKE_OFF)


@pytest.fixture
async def image(agent, base_image):
    """Some need Python 3.12."""
    return await made("trixie", base_image) if FOREIGN[agent].recipe.least_python == "3.12" else base_image


def ends(agent):
    """The replies with which an agent ends: Terminus 2 asks whether it is sure."""
    return [end_of(agent)[0]] * (2 if agent == "terminus-2" else 1)


@pytest.mark.parametrize("spoiled", SPOILED)
async def test_it_goes_on_or_ends_behind_a_reply_that_is_spoiled(docker_backend, image, agent, hermes, spoiled):
    script = [Writes("f", "hi"), *SPOILED[spoiled], *ends(agent)]
    async with at_work(docker_backend, image, agent, hermes, script) as worked:
        assert worked.result.stop_reason in ENDS
        assert (await worked.sandbox.exec("cat /app/f")).output.strip() == "hi"


async def test_calls_are_spoiled_in_a_models_own_format(docker_backend, image, agent, native):
    script = [Writes("f", "hi"), Spoils("broken"), *SPOILED["an unknown tool"], Spoils("cut"), *ends(agent)]
    async with at_work(docker_backend, image, agent, native, script) as worked:
        assert worked.result.stop_reason in ENDS


@pytest.mark.parametrize("cut", [0, 1, 150, -1], ids=["no byte", "a byte", "150 bytes", "all but one byte"])
async def test_an_answer_that_was_cut_is_told_again_and_not_sampled_again(docker_backend, image, agent, hermes, cut):
    # aider ends once an edit is made.
    alone = agent == "aider"
    script = [Writes("f", "hi")] if alone else [Writes("f", "hi", "I write."), Writes("g", "there"), *ends(agent)]
    cuts = [cut] if alone else [None, cut, None, cut]
    async with at_work(docker_backend, image, agent, hermes, script, cuts=cuts) as worked:
        prompts = [tuple(one.prompt) for one in worked.exchanges]
        assert len(set(prompts)) == len(prompts), "nothing is sampled twice"
    if worked.result.stop_reason == end_of(agent)[1]:
        branches, changes = worked.told["branches"], worked.told["changes"]
        # One that takes its last answer for whole, or for its end, asks no more: nobody knows that it was taken.
        assert branches["main"] + min(branches.get("untaken", 0), 1) >= len(script)
        # OpenCode runs a call before it sees that its answer was cut, and may tell both attempts from then on; Hermes
        # Agent tells that there was a cut.
        assert len(worked.result.segments) == 1 + changes.get("edited", 0)
