"""A function in a process of its own: it works as elsewhere, and can be killed."""

import asyncio
import os
import sys
import time
from multiprocessing import forkserver

import asking
import pytest
from pids import lives
from programs import Program
from waiting import in_time

from envs.functions import LLM
from envs.functions.calling import FunctionTimeoutError, call
from envs.functions.child import Child
from envs.types import Failure, Task


def wait_for_end(pids):
    in_time(lambda: not any(map(lives, pids)))


def test_what_it_is_forked_from_has_imported_us_once_for_all():
    given = {"task": Task("a", "?"), "llm": LLM("", "", "", "m", print)}
    assert Child(asking.server_has, given).run(print)


def test_what_the_program_has_the_fork_server_import_stays(monkeypatch):
    preloaded = []
    monkeypatch.setattr(forkserver._forkserver, "_preload_modules", ["json"])
    monkeypatch.setattr(forkserver, "set_forkserver_preload", preloaded.extend)
    Child(asking.server_has, {"llm": LLM("", "", "", "m", print)})
    assert preloaded == ["json", "envs.functions"]


async def test_it_asks_and_rewards_from_its_process(attempted):
    tasks = [{"instruction": "What is 2 + 2?", "parent": os.getpid()}]
    (saved,) = await attempted(asking.in_a_process, tasks, says=lambda prompt: "four")
    assert saved.verdict.reward == 2.0, "the answer was right, and the process was another"
    assert list(saved.reward.turn_advantages) == [0.25]


async def test_an_async_function_may_be_in_a_process_too(attempted):
    (saved,) = await attempted(asking.async_in_a_process, says=lambda prompt: "four", max_steps=3)
    assert saved.verdict.reward == 1.0 + 0 + 3


async def test_one_that_hangs_is_killed_with_what_it_has_started(tmp_path):
    file, began, since = tmp_path / "pids", time.monotonic(), []

    def waited():
        """Its time begins when it runs."""
        if not (file.exists() and file.read_text()):
            return time.monotonic() - began
        since.append(time.monotonic() - began)
        return since[0]

    task = Task("a", "?", metadata={"pids": str(file)})
    with pytest.raises(FunctionTimeoutError, match="it was killed"):
        await call(asking.hangs_in_a_process.work, {"task": task, "llm": LLM("", "", "", "m", print)}, 0.5, waited)
    pids = [int(pid) for pid in file.read_text().split()]
    await asyncio.to_thread(wait_for_end, pids)
    assert not any(map(lives, pids))


CALLS_ONE_THAT_HANGS = """
import asyncio, sys, asking
from envs.functions import LLM
from envs.functions.calling import call
from envs.types import Task
given = {"task": Task("a", "?", metadata={"pids": sys.argv[1]}), "llm": LLM("", "", "", "m", print)}
asyncio.run(call(asking.hangs_in_a_process.work, given, 600, lambda: 0.0))
"""


def test_it_ends_with_its_caller_even_where_that_is_killed(tmp_path):
    file = tmp_path / "pids"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    caller = Program(["-c", CALLS_ONE_THAT_HANGS, file], stdout=tmp_path / "log", env=paths)
    try:
        while not (file.exists() and file.read_text()):
            assert caller.poll() is None
            time.sleep(0.05)
    finally:
        caller.kill()
        caller.wait()
    pids = [int(pid) for pid in file.read_text().split()]
    wait_for_end(pids)
    assert not any(map(lives, pids))


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (asking.dies_in_a_process, "its process ended with status 7"),
        (asking.raises_in_a_process, "KeyError: 'nothing of that name'"),
        (asking.rewards_too_early, "there is no turn -1 to reward"),
    ],
    ids=["dies", "raises", "wrong"],
)
async def test_what_goes_wrong_there_is_told_here(attempted, function, said):
    found = await attempted(function)
    ((_, _, error),) = found.failed
    assert error.kind is Failure.ENVIRONMENT and said in str(error)
