"""Judging: what becomes of the agent's work, and of sandboxes that fail."""

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
import pytest
from verifier_samples import (
    REWARD,
    FailingBackend,
    dies_before_the_tests,
    dies_in_tests,
    rewards,
    survives,
    task,
    times_out,
    verdict_after,
)

from envs.judging.changes import Changes
from envs.judging.specs import agent_spec
from envs.judging.verifier import judge, open_verifier
from envs.types import InfraError
from sandboxes.base import DaemonUnavailable, Limits, SandboxError


@pytest.mark.docker
@pytest.mark.parametrize(("link", "reward", "said"), [("", 0.0, "is gone"), ("; ln -s /etc /app", 1.0, "Reward 1")])
async def test_a_working_directory_that_is_gone_is_no_reward_and_one_that_became_a_link_brings_nothing(
    docker_backend, base_image, tmp_path, link, reward, said
):
    sample = task(tmp_path, f'test -z "$(ls -A)" && {REWARD.format(1)}')
    verdict = await verdict_after(docker_backend, base_image, sample, f"cd /; rmdir /app{link}")
    assert (verdict.reward, said in verdict.explanation) == (reward, True)


@pytest.mark.docker
async def test_a_build_of_megabytes_is_carried(docker_backend, base_image, tmp_path):
    """They are unpacked from outside, and their names have more bytes than an argument may have."""
    last = f"{4999:060}"
    built = f'test "$(stat -c %s target/debug)" = 3000000 && test -e target/{last} && {REWARD.format(1)}'
    command = "mkdir target && cd target && truncate -s 3000000 debug && seq -f %060.0f 4999 | xargs touch"
    assert (await verdict_after(docker_backend, base_image, task(tmp_path, built), command)).solved


async def test_a_sandbox_that_dies_at_its_limits_in_the_tests_twice_is_the_codes_doing(tmp_path):
    backend = FailingBackend(dies_in_tests("memory"), dies_in_tests("memory"))
    verdict = await judge(backend, task(tmp_path, ""), "image", Changes())
    assert verdict.reward == 0.0
    assert "brought down their sandbox, twice, at the limit of its memory" in verdict.explanation


@pytest.mark.docker
async def test_code_that_takes_all_memory_of_its_sandbox_gets_0(docker_backend, base_image, tmp_path):
    # What lies in /dev/shm is nobody's whom the kernel could kill; what is left is taken by test.sh itself.
    fill = "head -c 60000000 /dev/zero > /dev/shm/x; x=xxxxxxxx; for n in $(seq 60); do x=$x$x; done; "
    sample = replace(task(tmp_path, fill + REWARD.format(1)), limits=Limits(memory_mb=32))
    verdict = await judge(docker_backend, sample, base_image, Changes())
    assert verdict.reward == 0.0, verdict.explanation


@pytest.mark.docker
async def test_tests_that_take_more_memory_than_there_is_end_early_without_a_sign(docker_backend, base_image, tmp_path):
    test = "def test_it():\n    kept = [bytearray(1 << 22) for _ in range(400)]\n"
    script = "python3 -m pytest -q /tests/test_it.py; echo 0.5 > /logs/verifier/reward.txt"
    sample = replace(task(tmp_path, script, {"test_it.py": test}), limits=Limits(memory_mb=96))
    verdict = await judge(docker_backend, sample, base_image, Changes())
    assert "the kernel killed programs at the limit of the memory" in verdict.explanation
    assert (verdict.reward, verdict.signs) == (0.0, ())


async def test_a_sandbox_that_dies_in_the_tests_once_is_judged_again(tmp_path):
    backend = FailingBackend(dies_in_tests(), survives())
    assert "logs could not be read" in (await judge(backend, task(tmp_path, ""), "image", Changes())).explanation
    assert backend.opened == 2


@pytest.mark.parametrize(("again", "reward"), [(False, 1.0), (True, 0.0)])
async def test_tests_that_had_no_processor_run_again_with_more_time(tmp_path, again, reward):
    backend = FailingBackend(times_out(2), times_out(2) if again else rewards())
    verdict = await judge(backend, task(tmp_path, "", timeout_s=10), "image", Changes())
    assert (verdict.reward, "did not end within 40 s" in verdict.explanation) == (reward, again)


@pytest.mark.parametrize(
    ("sandbox", "usual_s", "again"),
    [
        *[(times_out(2), usual_s, again) for usual_s, again in ((0.4, False), (0.6, True), (None, True))],
        *[(one, None, False) for one in (times_out(6), times_out(2, running=2), times_out(0.5), times_out(None))],
    ],
)
async def test_tests_that_had_a_processor_or_much_longer_than_usual_or_waited_do_not_run_again(
    tmp_path, sandbox, usual_s, again
):
    backend = FailingBackend(sandbox, rewards())
    verdict = await judge(backend, task(tmp_path, "", timeout_s=10, usual_s=usual_s), "image", Changes())
    assert (backend.opened, "did not end within 10 s" in verdict.explanation) == (1 + again, not again)
    assert verdict.reward == again


@pytest.mark.parametrize(
    "sandboxes",
    [
        (dies_before_the_tests(), dies_before_the_tests()),
        (dies_before_the_tests(), dies_in_tests()),
        *[tuple(map(dies_in_tests, limits)) for limits in [(None, None), ("memory", None), (None, "memory")]],
        (dies_in_tests(), DaemonUnavailable("no engine")),
        (SandboxError("no room"), SandboxError("no room")),
    ],
    ids=["before", "before-then-in", "in", "in-at-a-limit-first", "in-at-a-limit-then", "engine", "open"],
)
async def test_what_is_not_proven_to_be_the_codes_doing_is_ours(tmp_path, sandboxes):
    with pytest.raises(InfraError) as caught:
        await judge(FailingBackend(*sandboxes), task(tmp_path, ""), "image", Changes())
    assert caught.value.kind == "verifier"


@pytest.mark.parametrize("fault", [ZeroDivisionError, asyncio.CancelledError])
async def test_a_fault_in_opening_is_raised_not_waited_for(tmp_path, fault):
    with pytest.raises(fault):
        await asyncio.wait_for(judge(FailingBackend(fault()), task(tmp_path, ""), "x", Changes()), 5)


async def test_tests_that_the_machine_had_no_memory_for_prove_nothing(tmp_path):
    starved, sample = rewards(), task(tmp_path, "")
    starved.host_out_of_memory = partial(asyncio.sleep, 0, result=True)
    with pytest.raises(InfraError, match="ran out of memory, and its kernel killed programs in the verifier's sandbox"):
        await judge(FailingBackend(starved, starved), sample, "image", Changes())
    verdict = await judge(FailingBackend(starved, rewards()), sample, "image", Changes())
    assert verdict.reward == 1


async def test_an_agent_that_fails_leaves_no_verifier_behind(tmp_path):
    closed = []

    class Backend:
        @asynccontextmanager
        async def open(self, spec):
            try:
                await asyncio.sleep(60 if spec.image == "slow" else 0)
                yield survives()
            finally:
                closed.append(spec.image)

    sample = task(tmp_path, "")
    for image in ("slow", "fast"):
        with pytest.raises(KeyError):
            async with open_verifier(Backend(), sample, image):
                await asyncio.sleep(0.01)
                raise KeyError
    assert closed == ["slow", "fast"]


async def test_a_backend_may_keep_a_task_group_open(tmp_path, caplog):
    class Grouped(FailingBackend):
        @asynccontextmanager
        async def open(self, spec):
            async with anyio.create_task_group(), super().open(spec) as sandbox:
                yield sandbox

    async with open_verifier(Grouped(survives()), task(tmp_path, ""), "image") as verify:
        await verify(Changes())
    assert not [message for message in caplog.messages if "did not close cleanly" in message]


async def test_a_problem_needs_no_sandbox(tmp_path):
    changes = Changes(problem="it is too big")
    verdict = await judge(FailingBackend(survives()), task(tmp_path, ""), "image", changes)
    assert verdict.explanation == "Nothing could be judged: it is too big."


@pytest.mark.slow
@pytest.mark.docker
async def test_other_sandboxes_that_keep_the_processors_cost_right_work_nothing(
    docker_backend, base_image, tmp_path, caplog
):
    caplog.set_level("INFO")
    work = "python3 -c 'import time\nwhile time.process_time() < 2: pass'"
    sample = task(tmp_path, f"{work} && {REWARD.format(1)}", timeout_s=8)

    async def keep_one_busy():
        async with docker_backend.open(agent_spec(sample, base_image)) as sandbox:
            await sandbox.exec("while :; do :; done", timeout=90)

    others = [asyncio.create_task(keep_one_busy()) for _ in range(8 * (os.cpu_count() or 1))]
    await asyncio.sleep(5)
    verdict = await judge(docker_backend, sample, base_image, Changes())
    for other in others:
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    assert verdict.solved, verdict.explanation
    assert "is judged once more" in caplog.text
