"""Agents written with other people's clients and frameworks: their rows are the inference server's own log."""

import importlib.util
import inspect
import sys

import pytest
import scripts

from atropos_agent.types import IGNORED
from envs.functions import rollout

CLIENTS = [scripts.chat, scripts.chat_streamed, scripts.responses, scripts.anthropic_streamed]
FRAMEWORKS = {
    scripts.langgraph: "langgraph",
    scripts.pydantic_ai: "pydantic_ai",
    scripts.openai_agents: "agents",
    scripts.smolagents: "smolagents",
}


@pytest.fixture
def logged(attempted, engine):
    """Have a script work. Returns the rollout, and what the inference server was given and sampled, in its order."""

    async def work(script, **options):
        log = []
        engine.edit = lambda _, choice: log.append((tuple(choice["prompt_token_ids"]), tuple(choice["token_ids"])))

        if inspect.iscoroutinefunction(script):

            async def asks(task, llm):
                return float("42" in await script(llm))
        else:

            def asks(task, llm):
                return float("42" in script(llm))

        found = await attempted(rollout(tasks=["?"], **options)(asks), says=scripts.reasons, max_token_length=16384)
        assert not found.failed, found.failed
        (saved,) = found
        return saved, [turn for turn in log if len(turn[1]) > 1]  # without what is asked about the tokenizer

    return work


def check_rows(saved, log):
    """Every sampled token is trained in exactly one row, after exactly what the inference server was given."""
    trained = 0
    for row in saved.result.segments:
        tokens, places = tuple(row.tokens), set()
        for prompt, ids in log:
            if tokens[: len(prompt) + len(ids)] == prompt + ids:
                places |= set(range(len(prompt), len(prompt) + len(ids)))
        assert places == {at for at, label in enumerate(row.masked_tokens) if label != IGNORED}
        trained += len(places)
    assert trained == sum(len(ids) for _, ids in log)


@pytest.mark.parametrize("script", CLIENTS, ids=lambda script: script.__name__)
async def test_linear_work_with_an_official_client_is_one_row_of_the_servers_own_log(logged, script):
    saved, log = await logged(script)
    assert saved.verdict.reward == 1.0 and len(log) == 2
    assert len(saved.result.segments) == 1
    check_rows(saved, log)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # their own
@pytest.mark.parametrize("script", FRAMEWORKS, ids=lambda script: script.__name__)
async def test_work_with_a_framework_is_rows_of_the_servers_own_log(logged, script, monkeypatch):
    # A helper of other tests has the name of a package.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("tests/atropos_agent/gateway")])
    monkeypatch.delitem(sys.modules, "agents", raising=False)
    spec = importlib.util.find_spec(FRAMEWORKS[script])
    if spec is None or spec.origin is None:  # a folder of other tests has the name of a package
        pytest.skip(f"{script.__name__} is not installed")
    saved, log = await logged(script, tolerates=["tool_choice"])
    assert saved.verdict.reward == 1.0 and len(log) == 2
    # smolagents writes the history anew in words of its own.
    assert len(saved.result.segments) == (2 if script is scripts.smolagents else 1)
    check_rows(saved, log)
