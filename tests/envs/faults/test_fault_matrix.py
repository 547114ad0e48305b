"""The fault matrix: inference server, trainer API, our own process, the disk, Docker.

What goes in comes out, once, and no fault of ours is a reward of 0.

pytest -m slow tests/envs/faults/test_fault_matrix.py -s

A row is a name and a function that brings the fault about and takes it back; see `world.py`.
"""

import asyncio
import os
import resource
import signal
from functools import partial
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from small_disk import small_disk
from sums import right
from world import HERE, Fault, World, survive
from writing import works_and_says_so, write_tasks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
HELD_S = 1.5


@pytest.fixture
def disk(tmp_path):
    with small_disk(tmp_path / "disk", 64) as disk:
        yield disk


@pytest.fixture
def engine(smollm2_tokenizer, tokenizer_folder):
    with ScriptedEngine(right, smollm2_tokenizer, root=tokenizer_folder, delay_s=0.05) as engine:
        yield engine


# The inference server


async def answers(world, answer, seconds=HELD_S, only=b"/v1/completions"):
    world.to_engine.only, world.to_engine.always = only, answer
    await asyncio.sleep(seconds)
    world.to_engine.only, world.to_engine.always = b"/v1/completions", None


async def chooses(world, change, share=1, seconds=HELD_S):
    """Every so many-th choice is spoilt."""

    def edit(number, choice):
        if number % share == 0:
            change(choice)

    world.engine.edit = edit
    await asyncio.sleep(seconds)
    world.engine.edit = lambda _number, _choice: None


async def has_window(world, tokens):
    world.engine.window = tokens
    await asyncio.sleep(HELD_S)
    world.engine.window = 32768


async def tells_metrics(world, page):
    world.engine.metrics = page
    await asyncio.sleep(4.0)  # it is asked every two seconds
    world.engine.metrics = None


async def gone_while_we_start(world):
    await world.end(signal.SIGTERM)
    world.to_engine.only, world.to_engine.always = b"", "refuse"
    world.start()
    await asyncio.sleep(8.0)
    world.to_engine.only, world.to_engine.always = b"/v1/completions", None


STATUSES = (400, 401, 403, 404, 408, 409, 413, 422, 425, 429, 500, 501, 502, 503, 504)
CONNECTIONS = ("refuse", "reset", "truncate", "garbage", "lost answer", "slow", "wrong ids", "drip", "hang", "stall")
BODIES = (b"", b"null", b"[]", b"<html>gateway</html>", b'{"choices": []}', b'{"choices": [null]}', b'{"error": "x"}')
CHOICES = {
    "aborted": lambda choice: choice.update(finish_reason="abort"),
    "without a reason to end": lambda choice: choice.update(finish_reason=None),
    "without ids": lambda choice: choice.update(token_ids=None),
    "without logprobs": lambda choice: choice.update(logprobs=None),
    "with too few logprobs": lambda choice: choice["logprobs"]["token_logprobs"].pop(),
    "with positive logprobs": lambda choice: choice["logprobs"]["token_logprobs"].append(
        abs(choice["logprobs"]["token_logprobs"].pop())
    ),
    "with logprobs that are no numbers": lambda choice: choice["logprobs"].update(token_logprobs=["x"]),
    "without the prompt": lambda choice: choice.pop("prompt_token_ids"),
    "to another prompt": lambda choice: choice["prompt_token_ids"].append(1),
}
ENGINE = [
    *(Fault(f"the server answers {status}", partial(answers, answer=status)) for status in STATUSES),
    *(Fault(f"its connections: {fault}", partial(answers, answer=fault)) for fault in CONNECTIONS),
    *(Fault(f"its answer is {body!r}", partial(answers, answer=body)) for body in BODIES),
    *(Fault(f"its replies come {name}", partial(chooses, change=change)) for name, change in CHOICES.items()),
    Fault("one reply in three is aborted", partial(chooses, change=CHOICES["aborted"], share=3, seconds=4.0)),
    Fault("it hangs, also when it is asked whether it lives", partial(answers, answer="hang", only=b"")),
    Fault("it is away, with everything", partial(answers, answer="refuse", only=b"", seconds=4.0)),
    Fault("it comes back with a small context window", partial(has_window, tokens=600)),
    Fault("it comes back with a tiny context window", partial(has_window, tokens=10)),
    Fault("its metrics are torn", partial(tells_metrics, page='vllm:num_requests_running{a="1"} ')),
    Fault("its metrics are no numbers", partial(tells_metrics, page="vllm:num_requests_waiting NaN\n")),
    Fault("its metrics are binary", partial(tells_metrics, page="\udcff".encode("utf-8", "surrogateescape"))),
    Fault("it is away while we start", gone_while_we_start),
]


async def test_whatever_the_inference_server_does(tmp_path, engine, run_api, disk):
    async with World(tmp_path, engine, run_api, disk) as world:
        await survive(world, ENGINE)


# The trainer API, beside `test_sender_faults.py` and `test_delivery_kills.py`


async def api_answers(world, answer, only, seconds=HELD_S):
    world.to_api.only, world.to_api.always = only, answer
    await asyncio.sleep(seconds)
    world.to_api.always = None


API = [
    *(
        Fault(f"the API's answer to a group: {answer!r}", partial(api_answers, answer=answer, only=b"/scored_data"))
        for answer in (429, 500, 503, "refuse", "reset", "truncate", "garbage", "lost answer", "slow", b"<html>", b"{}")
    ),
    *(
        Fault(f"the API's answer to all: {answer!r}", partial(api_answers, answer=answer, only=b""))
        for answer in (404, 502, "refuse", "reset", b"", b"null", b"{}", b"[]", b"<html>")
    ),
]


async def test_whatever_the_trainer_api_does(tmp_path, engine, run_api, disk):
    async with World(tmp_path, engine, run_api, disk) as world:
        await survive(world, API)


# Our own process


async def ends(world, *numbers, expected=(130,)):
    await world.end(*numbers, expected=expected)
    world.start()


async def is_killed(world, pause=0.0):
    await asyncio.sleep(pause)
    await ends(world, signal.SIGKILL, expected=(-signal.SIGKILL,))


async def is_killed_while_it_starts(world):
    for moment in (0.5, 2.0, 4.0):
        await world.end(signal.SIGKILL, expected=(-signal.SIGKILL,))
        world.start()
        await asyncio.sleep(moment)


async def is_suspended(world, seconds):
    world.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(seconds)
    world.process.send_signal(signal.SIGCONT)


def descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def has_no_descriptors(world):
    before = resource.prlimit(world.process.pid, resource.RLIMIT_NOFILE)
    used = descriptors(world.process.pid)
    resource.prlimit(world.process.pid, resource.RLIMIT_NOFILE, (max(8, used - 4), before[1]))
    await asyncio.sleep(3.0)
    resource.prlimit(world.process.pid, resource.RLIMIT_NOFILE, before)


PROCESS = [
    Fault("SIGTERM", lambda world: ends(world, signal.SIGTERM)),
    Fault("Ctrl-C", lambda world: ends(world, signal.SIGINT)),
    Fault("SIGTERM twice", lambda world: ends(world, signal.SIGTERM, signal.SIGTERM)),
    Fault("SIGTERM three times", lambda world: ends(world, *[signal.SIGTERM] * 3)),
    *(Fault(f"kill -9 after {pause:g} s", partial(is_killed, pause=pause)) for pause in (0.0, 0.3, 0.9)),
    Fault("kill -9 while it starts", is_killed_while_it_starts),
    Fault("suspended for 5 s", partial(is_suspended, seconds=5.0)),
    Fault("suspended for longer than a rollout may take", partial(is_suspended, seconds=25.0)),
    Fault("no file can be opened", has_no_descriptors),
]


async def test_whatever_becomes_of_our_process(tmp_path, engine, run_api, disk):
    async with World(tmp_path, engine, run_api, disk) as world:
        await survive(world, PROCESS)


# The disk


async def is_full(world, seconds):
    world.disk.fill()
    await asyncio.sleep(seconds)
    world.disk.make_room()


async def is_full_when_we_are_asked_to_end(world, *numbers, expected):
    world.disk.fill()
    await asyncio.sleep(2.0)
    await world.end(*numbers, expected=expected)
    world.disk.make_room()
    world.start()


async def is_full_when_we_start(world):
    await world.end(signal.SIGTERM)
    world.disk.fill()
    world.start()
    await asyncio.sleep(8.0)  # by then it waits, or has said why not
    world.disk.make_room()
    if world.process.poll() is not None:
        world.start()


async def finds(world, name, content, *, add=False):
    """Something else stands in a file when we start."""
    await world.end(signal.SIGKILL, expected=(-signal.SIGKILL,))
    path = world.run_dir / name
    path.write_bytes((path.read_bytes() if add and path.exists() else b"") + content)
    world.start()


async def locks_the_journal(world):
    script = (
        "import sqlite3, sys, time; db = sqlite3.connect(sys.argv[1]); db.execute('BEGIN EXCLUSIVE'); time.sleep(9)"
    )
    process = await asyncio.create_subprocess_exec("python3", "-c", script, str(world.run_dir / "state.db"))
    assert await process.wait() == 0


DISK = [
    Fault("the disk is full for 1 s", partial(is_full, seconds=1.0)),
    Fault("the disk is full for 8 s", partial(is_full, seconds=8.0)),
    Fault(
        "it is full, and SIGTERM",
        lambda world: is_full_when_we_are_asked_to_end(world, signal.SIGTERM, expected=(1, 130)),
    ),
    Fault(
        "it is full, and SIGTERM twice",
        lambda world: is_full_when_we_are_asked_to_end(world, signal.SIGTERM, signal.SIGTERM, expected=(1, 130)),
    ),
    Fault(
        "it is full, and kill -9",
        lambda world: is_full_when_we_are_asked_to_end(world, signal.SIGKILL, expected=(-signal.SIGKILL,)),
    ),
    Fault("it is full when we start", is_full_when_we_start),
    *(
        Fault(f"metrics.json is {content!r}", partial(finds, name="metrics.json", content=content))
        for content in (b"", b"null", b"[]", b"{", b"\xff\x00", b'{"rollouts": "x"}')
    ),
    Fault("rollouts.jsonl ends in half a line", partial(finds, name="rollouts.jsonl", content=b'{"a', add=True)),
    Fault("another program holds the journal", locks_the_journal),
]


async def test_whatever_the_disk_does(tmp_path, engine, run_api, disk):
    async with World(tmp_path, engine, run_api, disk) as world:
        await survive(world, DISK)


# Docker


@pytest.fixture
async def boxed(tmp_path, engine, run_api, disk, own_daemon):
    """A run of the software engineering environment with a Docker daemon of its own."""
    engine.policy = works_and_says_so
    write_tasks(tmp_path / "tasks")
    options = (f"--env.tasks={tmp_path / 'tasks'}", "--env.tools=terminal")
    program = (HERE / "swe_program.py",)
    async with World(
        *(tmp_path, engine, run_api, disk), program=program, options=options, env={"DOCKER_HOST": own_daemon.url}
    ) as world:
        world.daemon = own_daemon
        yield world


async def docker(world, *arguments):
    process = await asyncio.create_subprocess_exec(
        *("docker", "-H", world.daemon.url, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    return (await process.communicate())[0].decode().split()


async def befalls_containers(world, *way, every, seconds=6.0):
    """Each container that is seen in that time, or one of them."""
    done, end = set(), asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end and (every or not done):
        for name in await docker(world, "ps", "-q"):
            if name not in done and (every or not done):
                done.add(name)
                await docker(world, *way, name)
        await asyncio.sleep(0.1)


async def pauses(world, seconds):
    names = await docker(world, "ps", "-q")
    for name in names:
        await docker(world, "pause", name)
    await asyncio.sleep(seconds)
    for name in names:
        await docker(world, "unpause", name)


async def kills_in_the_tests(world):
    """Verifiers' containers, while they run the tests, twice in a row and more."""
    end = asyncio.get_running_loop().time() + 12.0
    while asyncio.get_running_loop().time() < end:
        for name in await docker(world, "ps", "-q"):
            if "/tests/test.sh" in " ".join(await docker(world, "top", name)):
                await docker(world, "kill", name)
        await asyncio.sleep(0.05)


async def daemon_ends(world, number, seconds):
    await world.daemon.end(number)
    await asyncio.sleep(seconds)
    await world.daemon.start()


async def daemon_stands_still(world, seconds):
    pid = int((world.daemon.folder / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    os.kill(pid, signal.SIGCONT)


async def daemon_is_slow_when_we_start(world):
    await world.end(signal.SIGTERM)
    pid = int((world.daemon.folder / "pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    world.start()
    await asyncio.sleep(15.0)
    os.kill(pid, signal.SIGCONT)


DOCKER = [
    Fault("a container is killed", lambda world: befalls_containers(world, "kill", every=False)),
    Fault("every container is killed for a while", lambda world: befalls_containers(world, "kill", every=True)),
    Fault("a container is removed", lambda world: befalls_containers(world, "rm", "-f", every=False)),
    Fault("every container is removed for a while", lambda world: befalls_containers(world, "rm", "-f", every=True)),
    Fault("a container is stopped", lambda world: befalls_containers(world, "stop", "-t", "0", every=False)),
    Fault("verifiers' containers are killed in the tests", kills_in_the_tests),
    Fault("all stand still for 3 s", partial(pauses, seconds=3.0)),
    Fault("all stand still for longer than they may take", partial(pauses, seconds=60.0)),
    Fault("the daemon is restarted", partial(daemon_ends, number=signal.SIGTERM, seconds=1.0)),
    Fault("the daemon is killed", partial(daemon_ends, number=signal.SIGKILL, seconds=1.0)),
    Fault("the daemon is away for 8 s", partial(daemon_ends, number=signal.SIGTERM, seconds=8.0)),
    Fault("the daemon stands still for 8 s", partial(daemon_stands_still, seconds=8.0)),
    Fault("the daemon is slow when we start", daemon_is_slow_when_we_start),
    Fault("kill -9 of our process", is_killed),
    Fault("SIGTERM", lambda world: ends(world, signal.SIGTERM)),
]


@pytest.mark.docker
async def test_whatever_docker_does(boxed):
    await survive(boxed, DOCKER)
    left = await docker(boxed, "ps", "-aq")
    assert not left, "nothing is left behind"
