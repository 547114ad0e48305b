"""The decorators: a function stays what it is, and what can't be called is refused at once."""

import pytest

from envs.functions import Prompt, rollout, single_turn
from envs.functions.config import FunctionConfig


async def plain(task, llm):
    """Adds numbers."""
    return 1.0


async def test_a_decorated_function_is_still_called_as_written():
    function = rollout(tasks=["a"])(plain)
    assert await function(1, 2) == 1.0
    assert (function.__name__, function.__doc__) == ("plain", "Adds numbers.")


def test_it_names_the_environment_and_has_its_tasks():
    env_cls = rollout(tasks=["a", "b"], eval_tasks=lambda: ["c"])(plain).environment
    train, evaluate = env_cls.load_tasks(FunctionConfig())
    assert env_cls.name == "plain"
    assert ([task.instruction for task in train], [task.instruction for task in evaluate]) == (["a", "b"], ["c"])


async def unknown(tsk, llm): ...
async def several(task, llm, *more): ...
async def deaf(task): ...
def waits(task, llm, sandbox): ...
async def unnamed(task, llm, greeting): ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (unknown, "nothing is known as 'tsk'; did you mean task"),
        (several, r"\*more can't be given by name"),
        (deaf, "without a parameter `llm`"),
        (waits, "make it an async function"),
        (unnamed, "nothing is known as 'greeting'; .* is given task, llm, sandbox, seat, config; or give"),
        (3, "must be a function"),
        (dict, "must be a function"),
    ],
)
def test_a_function_that_can_not_be_called_is_refused_when_it_is_decorated(function, said):
    with pytest.raises(TypeError, match=said):
        rollout(tasks=["a"])(function)


def test_a_function_in_a_process_must_be_found_there_and_has_no_sandbox():
    async def inner(task, llm): ...

    async def works(task, llm, sandbox): ...

    with pytest.raises(TypeError, match="define it at the top of a module"):
        rollout(tasks=["a"], process=True)(inner)
    with pytest.raises(TypeError, match="can't have the sandbox"):
        rollout(tasks=["a"], process=True)(works)


def test_parameters_with_defaults_are_left_alone_and_resources_are_known_by_name():
    async def greets(task, llm, greeting, times=3): ...

    work = rollout(tasks=["a"], resources={"greeting": Prompt("Hello")})(greets).work
    assert work.parameters == ("task", "llm", "greeting")


@pytest.mark.parametrize("trained", [["mian"], "main"])
def test_only_kinds_of_conversations_are_trained(trained):
    with pytest.raises(TypeError, match="no kind of conversation; give some of main, fork, sub-agent"):
        rollout(tasks=["a"], trained=trained)


@pytest.mark.parametrize("tolerates", [["tool-choice"], "tool_choice"])
def test_only_demands_of_some_protocol_are_tolerated(tolerates):
    with pytest.raises(TypeError, match="give some of tool_choice, response_format"):
        rollout(tasks=["a"], tolerates=tolerates)


def test_resources_are_prompts_under_names_of_their_own():
    with pytest.raises(TypeError, match="'task' is what a function is given"):
        rollout(tasks=["a"], resources={"task": Prompt("x")})
    with pytest.raises(TypeError, match="'greeting' is no Prompt"):
        rollout(tasks=["a"], resources={"greeting": "Hello"})


def test_the_simplest_case_is_given_a_prompt_and_scored():
    with pytest.raises(TypeError, match=r"'llm'; .* is given task, prompt"):
        single_turn(tasks=["a"], score=lambda answer: 1.0)(lambda llm: "x")
    with pytest.raises(TypeError, match=r"'reply'; .* is given task, answer, result"):
        single_turn(tasks=["a"], score=lambda reply: 1.0)
