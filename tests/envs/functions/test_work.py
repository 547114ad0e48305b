"""The parts of an environment made of a function."""

import pytest

from envs.functions.arguments import Prompt
from envs.functions.config import FunctionConfig
from envs.functions.work import Work


def two_words(task):
    return 1.0


def made(**options) -> Work:
    return Work(two_words, ["task"], ["Say it."], **options)


def test_its_name_is_the_functions():
    assert made().name == "two-words"
    assert Work(lambda task: 1.0, ["task"], []).name == "<lambda>"


def test_it_is_evaluated_on_its_tasks_unless_others_are_given():
    train, evaluate = made().load_tasks(FunctionConfig())
    assert [task.instruction for task in train] == [task.instruction for task in evaluate] == ["Say it."]
    _, evaluate = made(eval_tasks=["Say another."]).load_tasks(FunctionConfig())
    assert [task.instruction for task in evaluate] == ["Say another."]


def test_a_prompt_from_a_file_stands_in_place_of_the_functions_own(tmp_path):
    work = made(prompts={"system": Prompt("You are {role}.")})
    path = tmp_path / "prompt"
    path.write_text("Be {role}, always.")
    assert work.prompts_with(FunctionConfig(prompts={"system": path}))["system"].format(role="kind") == (
        "Be kind, always."
    )
    path.write_text("Be {name}.")
    with pytest.raises(ValueError, match="must have the names of the function's own: role"):
        work.prompts_with(FunctionConfig(prompts={"system": path}))
    with pytest.raises(ValueError, match=r"--env.prompts.sistem: two-words has system; did you mean system\?"):
        work.prompts_with(FunctionConfig(prompts={"sistem": path}))
    with pytest.raises(ValueError, match="give a file with a prompt template"):
        work.prompts_with(FunctionConfig(prompts={"system": tmp_path / "none"}))
