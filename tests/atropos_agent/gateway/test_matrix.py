"""The matrix: traffic of agents on families of tokenizers with their own tool formats.

Each sampled token is in one row or counted; linear work is one row; what renders the history again makes more rows.
"""

import pytest
from agents import assert_every_token_is_accounted_for, opened
from cases import CASES, LINEAR
from native_families import BY_HAND, FAMILIES

STABLE = {"smollm2", *BY_HAND} - {"GLM 4.5, by hand", "MiniMax M2, by hand"}
"""Families whose templates leave earlier turns as they are; others begin new rows of their own. MiniMax M2's prompt
opens thinking, and its history holds none where the model had nothing to think."""
AFTER_THOUGHTS = {"MiniMax M3, by hand", "Kimi K3, by hand"}
"""Of these, the families that begin a row after an answer with thinking. MiniMax M3's template drops the thinking once
the user speaks. Kimi K3's keeps it, in a channel of its own, and no probe tells."""


OFTEN = ("smollm2", "Mistral v11, by hand")
"""Families of every run; the others take a minute."""
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name not in OFTEN]


def pytest_generate_tests(metafunc):
    """Leave the others to `./run test --all`: not even collected, which each worker would do, as they are thousands."""
    if metafunc.function is test_every_token_is_in_one_row_or_counted:
        metafunc.parametrize("family", OFTEN if metafunc.config.option.markexpr == "not slow" else [*OFTEN, *OTHERS])


@pytest.mark.parametrize("name", CASES)
async def test_every_token_is_in_one_row_or_counted(fit, family, name):
    case, fitted = CASES[name], fit(family)
    async with opened(fitted, case.replies, **case.options) as (client, engine):
        await case.traffic(client, engine)
        result = await client.session.result()
    assert_every_token_is_accounted_for(result, engine)
    assert not engine.scenario or case.options
    metadata = result.metadata["gateway"]
    assert {kind: metadata["branches"].get(kind, 0) for kind in case.branches} == case.branches
    assert {kind: metadata["changes"].get(kind, 0) for kind in case.changes} == case.changes
    if family in STABLE:
        thoughts = sum(said.thinking is not None and not said.calls for said in case.replies[:-1])
        assert len(result.segments) == case.rows + (thoughts if family in AFTER_THOUGHTS else 0)


@pytest.mark.parametrize("family", OFTEN)
async def test_rendering_the_history_again_makes_more_rows_of_linear_work(fit, family):
    ours, control = 0, 0
    for name in LINEAR:
        async with opened(fit(family), CASES[name].replies) as (client, engine):
            client.compares = True
            await CASES[name].traffic(client, engine)
            ours += len((await client.session.result()).segments)
        control += len(client.control)
    assert ours == len(LINEAR)
    assert control > ours
