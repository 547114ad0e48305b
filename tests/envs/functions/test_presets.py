"""Presets: agents of tools and prompts alone, judged by a function."""

import pytest
from sums import right

from envs.functions.presets import CODING, REACT, Agent, coder, react, tool_agent
from tools import calculator


def is_four(task, answer):
    return float(answer.strip() == str(task.metadata["answer"]))


TASKS = [{"id": "sum-2", "instruction": "What is 2 + 2?", "answer": 4}]


async def test_an_agent_calls_functions_and_is_scored(attempted):
    (saved,) = await attempted(tool_agent([calculator], score=is_four), TASKS, says=right)
    assert saved.verdict.reward == 1.0
    assert [call.name for call in saved.result.steps[0].calls] == ["calculator"]


async def test_react_is_told_to_think_before_it_calls(attempted):
    (saved,) = await attempted(react([calculator], score=is_four), TASKS, says=right)
    assert REACT in saved.result.messages[0]["content"]


async def test_a_coder_works_in_a_sandbox_which_its_score_sees(attempted):
    def writes(prompt):
        if "<tool_response>" in prompt.rsplit("write it", 1)[1]:
            return '<tool_call>{"name": "submit", "arguments": {"answer": "done"}}</tool_call>'
        return '<tool_call>{"name": "terminal", "arguments": {"command": "echo 42 > answer"}}</tool_call>'

    async def score(sandbox):
        return float((await sandbox.exec("cat answer")).output.strip() == "42")

    (saved,) = await attempted(coder(score=score), ["Compute it and write it"], says=writes, sandbox="local")
    assert saved.verdict.reward == 1.0
    assert CODING in saved.result.messages[0]["content"]


def test_what_an_agent_can_not_be_made_of_is_refused():
    with pytest.raises(ValueError, match="there is none of that name"):
        Agent(["terminl"], is_four)
    with pytest.raises(TypeError, match="nothing is known as 'sandbox'"):
        tool_agent([calculator], score=lambda sandbox: 1.0)
    with pytest.raises(TypeError, match="must be an async function"):
        tool_agent([is_four], score=is_four)
