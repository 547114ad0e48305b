"""A run of a million groups starts, goes on and ends within seconds: nothing is read whole that grows with the run."""

import asyncio
import random
import time

import orjson
import pytest
from packets import PLACE, draw, packet
from sums import metrics_of, right

from atropos_agent.types import IGNORED, AgentResult, AgentStep, SequenceData, StopReason
from envs.delivery.notes import KnownAPI
from envs.records.atif import to_atif
from envs.running.commands import process_groups
from envs.running.database import open_database
from envs.running.group import count_states, unfinished_groups
from envs.running.journal import Journal
from envs.running.outbox import Outbox
from envs.types import Reward, Rollout, Seat, Task, Verdict

GROUPS, TOKENS, SIZE = 1_000_000, 10_000, 400 * 10**9


@pytest.fixture
def policy():
    return right


def a_long_rollout():
    """A line of `rollouts.jsonl` with 10,000 tokens, as large as those of software tasks."""
    rng = random.Random(0)
    ids = [rng.randrange(100, 40000) for _ in range(TOKENS - 1)]
    logprobs = [-rng.random() for _ in ids]
    row = SequenceData("text " * TOKENS, [1, *ids], [IGNORED, *ids], [1.0, *logprobs])
    step = AgentStep(0, "said " * TOKENS, start=1, completion_tokens=len(ids))
    message = {"role": "user", "content": "Fix it."}
    result = AgentResult(True, "done", (step,), StopReason.ANSWERED, (row,), (message,))
    rollout = Rollout("old", Task("sum-0", ""), result, Verdict(1.0, ""), Reward(1.0), Seat(group=0, member=0))
    return orjson.dumps(to_atif(rollout)) + b"\n"


def a_long_history(directory):
    """Make the directory of a run that has made a million groups of two, and 400 GB of rollouts, most of it a hole."""
    db = open_database(directory / "state.db")
    numbers = f"WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n WHERE x < {GROUPS - 1})"
    db.execute("PRAGMA synchronous = OFF")
    with db:
        db.execute("BEGIN")
        db.execute(
            f"{numbers} INSERT INTO groups (number, task, state, reason) "
            "SELECT x, 'sum-' || (x % 6), 'saved', 'written to groups.jsonl' FROM n"
        )
        db.execute(f"{numbers} INSERT INTO members SELECT x, 0, x * 400000, 400000, 7, 1.0 FROM n")
        db.execute(f"{numbers} INSERT INTO members SELECT x, 1, x * 400000, 400000, 7, 0.0 FROM n")
        db.execute("INSERT INTO run VALUES ('id', '1a2b')")
    db.close()
    line = a_long_rollout()
    with (directory / "rollouts.jsonl").open("wb") as file:
        file.truncate(SIZE)
        file.seek(0, 2)
        file.write(b"\n" + line * 200)
    with (directory / "groups.jsonl").open("wb") as file:
        file.truncate(SIZE)
        file.seek(0, 2)
        file.write(b"\n")
    return len(line)


async def steps_of(journal, work):
    """How many instructions SQLite executes for what `work` does."""
    steps = []
    await journal.read(lambda db: db.set_progress_handler(lambda: steps.append(1), 1))
    await work()
    await journal.read(lambda db: db.set_progress_handler(None, 1))
    return len(steps)


async def test_a_group_costs_the_journal_the_same_whatever_was_before_it(tmp_path):
    async with Journal(tmp_path) as journal:

        async def one_group():
            outbox, group = Outbox(journal), await draw(journal)
            await group.add(0, Rollout("r", group.task, None, Verdict(1.0, ""), Reward(1.0)), PLACE)
            assert len(await unfinished_groups(journal)) == 1
            await outbox.add(group, [packet(group.number)], [])
            await outbox.confirm(await outbox.next_packet())
            await outbox.note_handed_on({-1: 0}, formed=1, api=KnownAPI(0, 1, 0, 4))
            assert (await count_states(journal))["delivered"] == group.number + 1

        await one_group()
        before = await steps_of(journal, one_group)
        for _ in range(100):
            await one_group()
        assert await steps_of(journal, one_group) < before + 100


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_million_groups_cost_the_start_the_next_group_and_the_end_seconds(
    engine, make_env, tmp_path, monkeypatch
):
    env = make_env(group_size=2, total_steps=GROUPS + 1)
    env.run_dir.mkdir()
    line = await asyncio.to_thread(a_long_history, env.run_dir)
    async with Journal(env.run_dir) as journal:
        await journal.identify({"group_size": 2, "seed": 0, "vocabulary": len(env.tokenizer)})
    moments = [time.monotonic()]

    class Noted(type(env)):
        async def attempt(self, task, seat):
            moments.append(time.monotonic())
            outcome = await super().attempt(task, seat)
            moments.append(time.monotonic())
            return outcome

    env.__class__ = Noted
    await process_groups(env)
    moments.append(time.monotonic())
    seconds = {"start": moments[1] - moments[0], "group": moments[-2] - moments[1], "end": moments[-1] - moments[-2]}
    size = (env.run_dir / "state.db").stat().st_size
    print(f"state.db {size / 1e6:.0f} MB, lines of {line / 1e3:.0f} kB: {seconds}")
    assert metrics_of(env).states == {"saved": GROUPS + 1}
    assert all(took < 10 for took in seconds.values()), seconds
    assert (env.run_dir / "rollouts.html").stat().st_size < 30e6
