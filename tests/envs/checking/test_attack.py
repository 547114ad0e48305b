"""Attacking tasks: what is rewarded without the work being done is found, kept and shown."""

import io
from dataclasses import replace

import pytest
from rich.console import Console
from test_check import make_task
from test_steps import two_steps

from envs.checking.attack import BUILT_IN, attack_tasks, attacked, judged, render, with_attack
from envs.checking.check import check_tasks
from envs.checking.generic_cheats import Cheat
from envs.checking.manifest import Attack, CheckResult
from envs.tasks.harbor import load_task
from envs.types import Step, Task, Verdict
from sandboxes.base import DaemonUnavailable, SandboxError

SOUND = CheckResult("good", "", "", (1.0,), (0.0,), 1)
WRONG = Cheat("something else", 'echo "$CODE" > done', "not 1")
IDLE = Cheat("nothing to find", "ls ./*.py")


class Broken:
    """A backend without sandboxes."""

    def __init__(self, error):
        self.error = error

    async def ensure_image(self, name, context):
        raise self.error


def shown(*results):
    console = Console(width=120, file=io.StringIO())
    console.print(render(results))
    return console.file.getvalue()


async def attack(backend, directory, *cheats):
    """The attacks on a task that was checked."""
    task = load_task(directory)
    (result,) = await check_tasks(backend, [task])
    assert result.ok, result.problem
    (result,) = await attack_tasks(backend, [task], {task.id: result}, cheats=cheats)
    return result.attacks


@pytest.mark.docker
async def test_a_test_that_looks_for_a_file_alone_accepts_one_with_something_else_in_it(docker_backend, tmp_path):
    wrong, idle = await attack(docker_backend, make_task(tmp_path, "weak"), WRONG, IDLE)
    assert (wrong.by, wrong.name, wrong.reward, wrong.rewarded) == (BUILT_IN, "something else", 1.0, True)
    assert "+not 1" in wrong.patch
    assert idle == Attack(BUILT_IN, "nothing to find", 0.0)


@pytest.mark.docker
async def test_each_step_of_a_task_is_attacked(docker_backend, tmp_path):
    (made,) = await attack(docker_backend, two_steps(tmp_path), Cheat("made", "[ -e made ] || echo 1 > made"))
    assert (made.reward, made.rewarded) == (0.5, True)
    assert "+1" in made.patch


async def test_tasks_that_can_not_be_used_are_not_attacked():
    bad = replace(SOUND, problem="why")
    assert await attack_tasks(object(), [Task("good", ""), Task("new", "")], {"good": bad}) == []


async def test_cheats_that_were_judged_are_not_tried_again():
    known = with_attack(SOUND, Attack(BUILT_IN, "something else", 0.0))
    seen = []
    results = await attack_tasks(object(), [Task("good", "")], {"good": known}, cheats=[WRONG], on_result=seen.append)
    assert results == seen == [known]


async def test_a_cheat_that_could_not_be_judged_is_an_attack_without_a_reward_and_tried_again():
    known = with_attack(SOUND, Attack(BUILT_IN, "something else", None, problem="earlier"))
    (result,) = await attack_tasks(Broken(SandboxError("[full]")), [Task("good", "")], {"good": known}, cheats=[WRONG])
    assert result.attacks == (Attack(BUILT_IN, "something else", None, problem="[full]"),)
    assert result.accepts == []
    assert "good: something else was not judged: [full]" in shown(result)


async def test_a_docker_daemon_that_is_gone_ends_the_attack():
    with pytest.raises(DaemonUnavailable):
        await attack_tasks(Broken(DaemonUnavailable("start it")), [Task("good", "")], {"good": SOUND})


@pytest.mark.parametrize(("reward", "rewarded"), [(0.5, False), (0.25, False), (0.75, True), (1.0, True)])
def test_an_attack_is_rewarded_that_gets_more_than_doing_nothing(reward, rewarded):
    partly = replace(SOUND, nothing=(0.5,))
    found = judged(partly, "a-model", "attempt 1", Verdict(reward, "", patch="diff"))
    assert found == Attack("a-model", "attempt 1", reward, rewarded, patch="diff" if rewarded else "")


def test_a_later_attack_of_the_same_name_takes_the_place_of_the_earlier():
    other = Attack("b", "attempt 1", 1.0, True)
    result = with_attack(with_attack(SOUND, Attack("a", "attempt 1", 1.0, True)), other)
    assert with_attack(result, Attack("a", "attempt 1", 0.0)).attacks == (other, Attack("a", "attempt 1", 0.0))


def test_a_model_is_told_the_task_and_not_to_do_it():
    task = Task("one", "Fix it.", steps=(Step("first", "Begin it.", Task("", "").hidden),))
    told = attacked(task)
    for text, own in ((told.instruction, "Fix it."), (told.steps[0].instruction, "Begin it.")):
        assert text.endswith(own) and "Do NOT do what it asks" in text
    assert (told.id, told.digest, told.hidden) == (task.id, task.digest, task.hidden)


def test_the_table_names_the_tasks_that_accept_a_wrong_patch_and_what_they_accept():
    weak = replace(
        SOUND, task_id="weak", attacks=(Attack("[m]", "attempt 2", 1.0, True), Attack("[m]", "attempt 1", 0.0))
    )
    text = shown(weak, with_attack(SOUND, Attack(BUILT_IN, "x", 0.0)))
    assert "1 of 2 tasks accepted a wrong patch; 3 attacks tried" in text
    assert all(word in text for word in ("weak", "[m]", "attempt 2 (1)")) and "attempt 1" not in text
    assert "good" not in text
    assert shown(SOUND).strip() == "0 of 1 task accepted a wrong patch; 0 attacks tried"
