"""Running hidden tests on the changes in a prepared sandbox."""

import time
from contextlib import nullcontext

import pytest
from task_formats import write
from verifier_samples import (
    REWARD,
    AnsweringSandbox,
    FailingBackend,
    FailingSandbox,
    image_of,
    rewards,
    task,
    verdict_after,
)

from envs.judging.changes import Changes
from envs.judging.verifier import judge
from envs.types import InfraError
from sandboxes.base import ExecResult


@pytest.mark.docker
async def test_changes_deletions_and_new_kinds_are_applied(docker_backend, tmp_path):
    lines = ("WORKDIR /src", "COPY files/ /src/", "RUN chmod 400 frozen && ln -s /etc out")
    folder = image_of(tmp_path, True, *lines)
    write(folder / "files", dict.fromkeys(("room/thing", "deep/gone", "file", "frozen", "-n name"), "1"))
    image = await docker_backend.ensure_image(None, folder)
    sample = task(
        tmp_path, "find . -printf '%p %y %m\\n' | sort; cat frozen file/x out/y; " + REWARD.format(0), workdir=None
    )
    remove = "rm -r deep './-n name' out file frozen; mkdir file out"
    command = remove + "; echo 2 > file/x; echo 3 > out/y; echo 4 > frozen; chmod 775 room"
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.explanation.split("\n", 1)[1] == (
        ". d 755\n./file d 755\n./file/x f 644\n./frozen f 644\n./out d 755\n./out/y f 644\n"
        "./room d 775\n./room/thing f 644\n4\n2\n3\n"
    )


@pytest.mark.docker
async def test_what_a_user_has_made_writable_first_can_be_deleted(docker_backend, tmp_path):
    lines = "RUN mkdir -p sealed && touch sealed/old kept && chown -R 1000:1000 . && chmod 555 sealed", "USER 1000"
    image = await docker_backend.ensure_image(None, image_of(tmp_path, True, *lines))
    sample = task(tmp_path, f"[ ! -e sealed/old ] && [ $(id -u) = 1000 ] && {REWARD.format(1)}", workdir=None)
    for behind in ("", " && chmod 555 sealed"):
        command = f"chmod 755 sealed && rm sealed/old{behind}"
        verdict = await verdict_after(docker_backend, image, sample, command)
        assert verdict.solved, verdict.explanation


@pytest.mark.docker
async def test_nothing_but_the_working_directory_is_carried(docker_backend, base_image, tmp_path):
    script = f"test -e /usr/bin/planted -o -e /tests/planted -o -e .git && {REWARD.format(0)} || {REWARD.format(1)}"
    plant = "mkdir -p /logs/verifier /tests .git; touch /tests/planted .git/x /usr/bin/planted"
    command = plant + "; echo 5 > /logs/verifier/reward.txt"
    verdict = await verdict_after(docker_backend, base_image, task(tmp_path, script), command)
    assert verdict.reward == 1.0


@pytest.mark.docker
async def test_the_tests_get_their_environment_and_user(docker_backend, base_image, tmp_path):
    sample = task(tmp_path, "id -u; pwd; echo $WHO; " + REWARD.format(1), user="65534", test_env={"WHO": "verifier"})
    verdict = await judge(docker_backend, sample, base_image, Changes())
    assert verdict.explanation.endswith("65534\n/app\nverifier\n")
    assert verdict.solved


@pytest.mark.parametrize(("times", "reward"), [(1, 1.0), (3, 0.0)])
async def test_a_test_sh_that_is_killed_runs_in_another_sandbox(tmp_path, times, reward):
    def killed():
        return AnsweringSandbox(lambda timeout: ExecResult(137, b""), logs={})

    backend = FailingBackend(*(killed() for _ in range(times)), rewards())
    verdict = await judge(backend, task(tmp_path, ""), "image", Changes())
    assert verdict.reward == reward
    assert backend.opened == min(times + 1, 3)
    assert ("test.sh was killed in 3 sandboxes" in verdict.explanation) is (reward == 0)


async def test_a_test_sh_that_ends_by_a_signal_with_its_reward_written_has_ended(tmp_path):
    backend = FailingBackend(AnsweringSandbox(lambda timeout: ExecResult(143, b"")))
    assert (await judge(backend, task(tmp_path, ""), "image", Changes())).reward == 1.0


async def test_very_many_folders_with_other_modes_are_applied_in_linear_time(tmp_path):
    paths, began = tuple(f"folder-{number}" for number in range(40_000)), time.process_time()
    changes = Changes(changed=paths, folders=paths)
    assert (await judge(FailingBackend(rewards()), task(tmp_path, ""), "image", changes)).solved
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize(("status", "ours"), [(123, False), (124, True), (137, True), (1, True)])
async def test_deletions_that_end_otherwise_than_refused_are_ours(tmp_path, status, ours):
    class Refusing(FailingSandbox):
        async def exec(self, command, **options):
            return ExecResult(status if "xargs" in command else 0, b"")

    backend = FailingBackend(Refusing(None), Refusing(None))
    with pytest.raises(InfraError) if ours else nullcontext():
        verdict = await judge(backend, task(tmp_path, ""), "image", Changes(deleted=("old",)))
        assert verdict.explanation.startswith("The agent's deletions could not be made")


@pytest.mark.parametrize(("late_s", "limit", "ours"), [(0.5, None, False), (40.0, None, True), (40.0, "memory", False)])
async def test_tests_that_are_ended_long_after_their_time_stood_still(tmp_path, late_s, limit, ours):
    class Late(FailingSandbox):
        async def exec(self, command, **options):
            ended = "/tests/test.sh" in command
            return ExecResult(124 if ended else 0, b"", timed_out=ended, duration_s=30.0 + late_s)

    backend = FailingBackend(Late(None, limit), Late(None, limit))
    with pytest.raises(InfraError, match="stood still") if ours else nullcontext():
        verdict = await judge(backend, task(tmp_path, "", timeout_s=30.0), "image", Changes())
        assert verdict.explanation.startswith("The tests did not end within")
