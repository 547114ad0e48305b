"""The examples, copied out of the repository and run as a user would run them."""

import ast
import asyncio
import json
import os
import re
import shutil
from pathlib import Path

import httpx
import orjson
import programs
import pytest
from embedded_engine import engine as embedded
from scripted_engine import ScriptedEngine

from atropos_agent.tokens.record import problems
from envs.records.read import read_rollouts
from envs.running.group import group_outcomes
from envs.runs import open_run
from envs.swe import STARTER

README = Path(__file__).parent.parent / "README.md"
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def last_message(prompt):
    return prompt.rsplit("<|im_start|>user\n", 1)[1].split("<|im_end|>")[0]


def multiplies(prompt):
    said = last_message(prompt)
    if "<tool_response>" in said:
        return said.split("\n")[1]
    return call("calculator", expression=said.removeprefix("What is ").strip("?"))


def runs_python(prompt):
    if "<tool_response>" in last_message(prompt):
        return "done"
    return call("python", code="open('notes.txt', 'w').write('6 * 7 = 42'); print(6 * 7)")


def is_careless(prompt):
    return "done" if "<tool_response>" in last_message(prompt) else "<tool_call>oops</tool_call>"


def asks_who_it_is(prompt):
    return "done" if "<tool_response>" in last_message(prompt) else call("terminal", command="id -un")


@pytest.fixture
def run_example(smollm2_tokenizer, tmp_path):
    folder = tmp_path / "tokenizer"
    smollm2_tokenizer.save_pretrained(folder)

    def run(program, policy, *options):
        for example in EXAMPLES:
            shutil.copy(example, tmp_path)
        with ScriptedEngine(policy, smollm2_tokenizer, root=str(folder)) as engine:
            done = programs.run(
                [
                    *program,
                    "process",
                    f"--openai.base_url={engine.url}",
                    "--env.total_steps=1",
                    "--env.group_size=2",
                    f"--env.run_dir={tmp_path / 'run'}",
                    *options,
                ],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(tmp_path)},
            )
        assert done.returncode == 0, done.stderr
        run.stderr = done.stderr
        (group,) = [orjson.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_bytes().splitlines()]
        return group, list(read_rollouts(tmp_path / "run"))

    return run


SWE = ["-m", "envs.swe"]
TASK = f"--env.tasks={STARTER / 'create-notes'}"


@pytest.mark.parametrize("program", [["environment.py"], ["-m", "envs", "environment:Products"]], ids=["file", "path"])
def test_an_environment_of_ones_own(run_example, program):
    group, _ = run_example(program, multiplies)
    assert group["scores"] == [1.0, 1.0]


@pytest.mark.parametrize("program", [["function.py"], ["-m", "envs", "function:products"]], ids=["file", "path"])
def test_a_function_that_is_an_environment(run_example, program):
    group, rollouts = run_example(program, multiplies)
    assert group["scores"] == [1.0, 1.0]
    assert [len(rollout.result.steps) for rollout in rollouts] == [2, 2]
    assert len(group["tokens"]) == 2, "linear work is one row"


def test_the_environment_in_the_readme(run_example, tmp_path):
    text = README.read_text().partition("## An environment\n")[2]
    blocks = dict(re.findall(r"^```(python|sh)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[1::-1])
    name = blocks["sh"].split()[1]
    (tmp_path / name).write_text(blocks["python"])
    group, rollouts = run_example([name], lambda prompt: "6" if last_message(prompt) == "What is 2 * 3?" else "7")
    assert group["scores"] == [1.0, 1.0]
    assert [rollout.result.final_response for rollout in rollouts] == ["6", "6"]


def test_an_environment_in_which_a_user_speaks(run_example, smollm2_tokenizer):
    def waits_for_the_last_wish(prompt):
        said = last_message(prompt)
        if "At " not in said:
            return "How many are you, and when?" if "<tool_response>" not in said else "It is booked."
        people = re.findall(r"We are (\d+)\.", prompt)[-1]
        return call("book", people=int(people), hour=int(re.search(r"At (\d+)", said)[1]))

    group, rollouts = run_example(["user.py"], waits_for_the_last_wish)
    assert group["scores"] == [1.0, 1.0]
    assert len(group["tokens"]) == 2, "one row a rollout"
    for rollout, masks in zip(rollouts, group["masks"], strict=True):
        roles = [message["role"] for message in rollout.result.messages]
        assert roles == ["system", *["user", "assistant"] * 4], "three messages of the user's, one of the tool's"
        sampled = smollm2_tokenizer.decode([token for token in masks if token != -100])
        assert "It is booked." in sampled
        assert "please" not in sampled, "words of others are context"


@pytest.mark.parametrize(
    "wrong",
    [
        call("calculator", formula="2 * 3"),
        call("calculator", expression="import os"),
        call("python", code="2 * 3"),
        '<tool_call>{"name": "calculator", "arguments": {"expression": </tool_call>',
    ],
)
def test_a_wrong_call_in_the_function_is_the_models_to_mend(run_example, wrong):
    def errs_first(prompt):
        return wrong if "What is" in last_message(prompt) else "no idea"

    group, _ = run_example(["function.py"], errs_first)
    assert group["scores"] == [0.0, 0.0]
    assert "Traceback" not in run_example.stderr
    assert "INFO httpx" not in run_example.stderr


def test_a_model_is_measured_without_a_trainer(smollm2_tokenizer, tmp_path):
    def has_a_calculator_or_not(prompt):
        return "no idea" if "alone." in prompt else multiplies(prompt)

    smollm2_tokenizer.save_pretrained(tmp_path / "tokenizer")
    with ScriptedEngine(has_a_calculator_or_not, smollm2_tokenizer, root=str(tmp_path / "tokenizer")) as engine:
        done = programs.run([EXAMPLES[0].parent / "notebook.py", engine.url], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "0.00 right; the last: no idea"
    assert second.startswith("1.00 right; the last: ") and second.split()[-1].isdigit()
    assert [sum(1 for _ in read_rollouts(run)) for run in (tmp_path / "runs").iterdir()] == [16, 16]


async def test_the_notebook_prints_what_is_saved_in_it(tmp_path, monkeypatch, capsys):
    """Its cells in their order, in one namespace, as Jupyter runs them; `await` may stand outside of functions."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES[0].parent / "notebook.ipynb").read_text())["cells"]
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            compiled = compile("".join(cell["source"]), "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if (pending := eval(compiled, names)) is not None:
                await pending
    saved = "".join(line for cell in cells for output in cell.get("outputs", []) for line in output["text"])
    assert capsys.readouterr().out == saved


def test_prompts_are_optimised_while_a_run_goes_on(smollm2_tokenizer, tmp_path):
    def calculates_if_it_is_asked_to(prompt):
        return multiplies(prompt) if "Use the calculator." in prompt else "no idea"

    smollm2_tokenizer.save_pretrained(tmp_path / "tokenizer")
    with ScriptedEngine(calculates_if_it_is_asked_to, smollm2_tokenizer, root=str(tmp_path / "tokenizer")) as engine:
        done = programs.run([EXAMPLES[0].parent / "prompts.py", engine.url], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Work step by step. Use the calculator."
    (directory,) = (tmp_path / "runs").iterdir()
    with open_run(directory) as run:
        means = [run.figures(resource=f"system_prompt={version}")[0]["reward"] for version in (1, 2, 3, 4)]
        assert means == [0.0, 1.0, 1.0, 1.0]
        for group in run.groups():
            lines = list(run.rollouts(group=group.number))
            assert {line["resources"][0] for line in lines} == {f"system_prompt={group.resources['system_prompt']}"}
        assert run.metrics().versions["system_prompt=2"] == {"rollouts": 8, "reward_sum": 8.0, "solved": 8}


@pytest.mark.engine
@pytest.mark.timeout(400)
async def test_a_trainer_of_ones_own_goes_on_from_its_checkpoint(tmp_path):
    from atropos_agent.cpu_engine.model import locate

    model, program = locate("tiny"), EXAMPLES[0].parent / "trainer.py"
    async with embedded(str(model), 512) as url:
        for steps in (1, 2):
            done = await asyncio.to_thread(programs.run, [program, model, url, steps], cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        version = await asyncio.to_thread(lambda: httpx.get(f"{url}/weight_version").json()["version"])
    groups = list(group_outcomes(tmp_path / "runs" / "trainer" / "run"))
    assert version == 2
    assert [group.state for group in groups] == ["confirmed", "confirmed", "taken"], "the last one was looked ahead at"


@pytest.mark.docker
def test_a_tool_of_ones_own(run_example, docker_backend):
    _, rollouts = run_example(SWE, runs_python, TASK, "--env.tools=submit,tool:python_tool")
    assert rollouts[0].result.steps[0].results[0].content.strip() == "42"


@pytest.mark.docker
def test_a_reward_of_ones_own(run_example, docker_backend):
    group, rollouts = run_example(SWE, is_careless, TASK, "--env.reward=reward:careful")
    assert group["scores"] == [-0.1, -0.1]
    assert [rollout.verdict.reward for rollout in rollouts] == [0.0, 0.0], "the verifier's own is kept"


@pytest.mark.docker
def test_a_sandbox_backend_of_ones_own(run_example, docker_backend):
    run_example(SWE, asks_who_it_is, TASK, "--env.sandbox=sandbox_backend:LoggingBackend")
    assert "ended with 0: root" in run_example.stderr
    assert "/tests/test.sh" in run_example.stderr


@pytest.mark.docker
def test_an_agent_and_a_tool_format_of_ones_own(run_example, docker_backend):
    def writes_lines(prompt):
        return "done" if "root" in prompt else 'CALL terminal {"command": "id -un"}'

    options = ["--env.agent=agent:AsksOnceMore", "--env.tool_format=tool_format:Lines"]
    _, rollouts = run_example(SWE, writes_lines, TASK, *options)
    assert "Are you sure?" in rollouts[0].result.messages[-2]["content"]
    assert rollouts[0].result.steps[0].calls[0].arguments == {"command": "id -un"}


def works(prompt):
    """Does as the agents ask it to."""
    said = last_message(prompt)
    expression = re.search(r"What is (\d+ \* \d+)", prompt)[1]
    if "Write a plan" in said:
        return "1. Multiply."
    if "Which is right?" in said:
        return "2"
    if "Sum up" in said or "Are you sure?" in said:
        return f"It is {prompt.rsplit('<tool_response>', 1)[1].split()[0]}."
    if "Your work so far" in said:
        return said.split("Your work so far: ")[1]
    return said.split()[1] if "<tool_response>" in said else call("calculator", expression=expression)


@pytest.mark.parametrize(
    ("agent", "branches", "steps"),
    [
        ("agent:AsksOnceMore", ["main"], 3),
        ("planner:Planner", ["main"], 3),
        ("judge:Judged", ["main", "fork", "sub-agent"], 5),
        ("compacts:Compacts", ["main", "main"], 3),
    ],
)
def test_an_agent_of_ones_own(run_example, agent, branches, steps):
    options = [f"--env.agent={agent}", "--env.max_token_length=2250"]
    group, rollouts = run_example(["-m", "envs", "environment:Products"], works, *options)
    assert set(group["scores"]) == {1.0}
    for rollout in rollouts:
        assert [row.branch for row in rollout.result.segments] == branches
        assert rollout.result.num_steps == steps
        assert problems(rollout.result.segments, rollout.result.record) == [None] * len(branches)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_fewer_than_forty_lines_and_a_trainer_a_hundred(path):
    assert len(path.read_text().splitlines()) < (100 if path.name == "trainer.py" else 40)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_page_of_extensions_links_to_it(path):
    """The site shows each in whole, from the file: `.ci/site.py`."""
    assert f"(../examples/{path.name})" in (EXAMPLES[0].parent.parent / "docs/extending.md").read_text()
