"""An odd answer that comes again and again is explained by what else the server answers."""

from dataclasses import dataclass

import pytest

from atropos_agent.engines.errors import ContextOverflow, OddAnswer
from atropos_agent.engines.settling import settle_error
from atropos_agent.types import EngineError

BROKEN = OddAnswer("500", broken=True)


@dataclass
class Bounded:
    """A server that answers prompts of up to `most` ids without a 13, or none."""

    most: int = 100
    works: bool = True
    max_model_len: int | None = None
    label: str = "the server"

    async def can_sample(self, prompt):
        return self.works and len(prompt) <= self.most and 13 not in prompt


@pytest.mark.parametrize("most", [1, 2, 100, 399])
async def test_an_error_that_only_a_long_prompt_gets_is_a_full_context_window_which_is_then_known(most):
    server = Bounded(most)
    found = await settle_error(server, BROKEN, list(range(20, 420)))
    assert isinstance(found, ContextOverflow)
    assert server.max_model_len == most + 1


async def test_an_error_that_only_this_prompt_gets_is_refused_for_good():
    server = Bounded()
    assert type(await settle_error(server, BROKEN, [1, 13, 2])) is EngineError
    assert server.max_model_len is None


async def test_a_known_context_window_is_not_looked_for():
    server = Bounded(max_model_len=4096)
    assert type(await settle_error(server, BROKEN, list(range(20, 420)))) is EngineError
    assert server.max_model_len == 4096


async def test_an_error_that_is_over_when_it_is_looked_into_has_passed():
    assert await settle_error(Bounded(), BROKEN, [1, 2]) is BROKEN


async def test_an_error_that_every_prompt_gets_may_pass():
    assert await settle_error(Bounded(works=False), BROKEN, [1, 2]) is BROKEN


async def test_what_is_no_completion_each_time_is_refused_for_good():
    assert type(await settle_error(Bounded(), OddAnswer("HTML"), [1, 2])) is EngineError
