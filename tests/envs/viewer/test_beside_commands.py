"""The page in a real browser beside the commands that people run: a demo, and learning that is killed and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import sqlite3
import statistics
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import browsing, complaints, members, more_members, open_page, serious

from envs.records.read import SavedRollout, read_rollouts

pytestmark = [pytest.mark.slow, pytest.mark.docker, pytest.mark.engine, pytest.mark.timeout(1500)]


@asynccontextmanager
async def command(log: Path, *words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """One of ours, with what it says in a file; interrupted, as by Ctrl-C, if it still runs."""
    with log.open("wb") as file:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "envs.swe", *words), stdout=file, stderr=asyncio.subprocess.STDOUT
        )
    try:
        yield program
    finally:
        if program.returncode is None:
            program.send_signal(signal.SIGINT)
        await program.wait()


@asynccontextmanager
async def viewed(run: Path, log: Path) -> AsyncIterator[str]:
    """The address of `view RUN`."""
    async with command(log, "view", str(run)) as program:
        async with asyncio.timeout(120):
            while (found := re.search(r"(http://\S+)/\n", said(log))) is None:
                assert program.returncode is None, said(log)
                await asyncio.sleep(0.2)
        yield found[1]


def said(log: Path) -> str:
    return log.read_text()[-3000:]


async def begun(directory: Path, program: asyncio.subprocess.Process, log: Path) -> None:
    """Wait until a rollout is saved."""
    async with asyncio.timeout(600):
        while not saved_parts(directory):
            assert program.returncode is None, said(log)
            await asyncio.sleep(0.5)


async def test_the_page_beside_a_demo_is_what_its_directory_says(tmp_path):
    run, log = tmp_path / "run", tmp_path / "demo.log"
    async with (
        command(log, "demo", "--groups", "8", "--run-dir", str(run)) as demo,
        browsing() as browser,
    ):
        await begun(run, demo, log)
        async with viewed(run, tmp_path / "view.log") as site:
            page = await open_page(browser)
            with complaints(page) as complained:
                await page.goto(f"{site}/0/")
                before = await more_members(page, 0)
                assert await page.inner_text("#live") == "goes on"
                await more_members(page, before)
                assert complained == []
            assert await demo.wait() == 0, said(log)
            await every_number_is_the_runs(browser, f"{site}/0", run)


async def test_the_page_beside_learning_and_after_it_was_killed(tmp_path):
    run, log = tmp_path / "lesson", tmp_path / "learn.log"
    directory = run / "environment"
    words = ("learn", "--preset", "smoke", "--steps", "2", "--run-dir", str(run))
    async with browsing() as browser:
        async with command(log, *words) as learning:
            await begun(directory, learning, log)
            async with viewed(run, tmp_path / "view.log") as site:
                page = await open_page(browser)
                with complaints(page) as complained:
                    await page.goto(site)
                    await page.get_by_role("link", name="lesson").first.click()
                    before = await more_members(page, 0)
                    assert await page.inner_text("#live") == "goes on"
                    await more_members(page, before)
                    assert complained == []
                learning.kill()
                await learning.wait()
        async with viewed(run, tmp_path / "view.log") as site:
            await over(browser, f"{site}/{await place_of(browser, site)}")
            await every_number_is_the_runs(browser, f"{site}/{await place_of(browser, site)}", directory)
            async with command(log, *words) as learning:
                assert await learning.wait() == 0, said(log)
        async with viewed(run, tmp_path / "view.log") as site:
            await every_number_is_the_runs(browser, f"{site}/{await place_of(browser, site)}", directory)
            await evaluations_are_compared(browser, site, run)


async def place_of(browser: Any, site: str) -> str:
    """The number of the environment's page among those of the parts of a learning run."""
    page = await open_page(browser)
    await page.goto(site)
    path = await page.get_by_role("link", name="lesson").first.get_attribute("href")
    await page.close()
    return path.strip("/").split("/")[-1]


async def over(browser: Any, home: str) -> None:
    """Wait until the environment, which ends by itself when its parent has been killed, has ended."""
    page = await open_page(browser)
    await page.goto(f"{home}/")
    await page.locator("#live", has_text="over").wait_for(timeout=60_000)
    await page.close()


async def every_number_is_the_runs(browser: Any, home: str, directory: Path) -> None:
    """Compare each page with the journal and the saved rollouts."""
    page = await open_page(browser)
    with complaints(page) as complained:
        await page.goto(f"{home}/")
        await indexed(page)
        saved = list(read_rollouts(directory))
        await overview(page, saved, directory)
        await steps(page, home, saved)
        await groups(page, home, directory)
        await searched(page, home, saved, directory)
        await tokens(page, home, saved)
    assert complained == []
    for phone, dark in ((False, True), (True, False)):
        page = await open_page(browser, phone=phone, dark=dark)
        for path in ("/", "/steps", "/rollouts", "/groups", "/groups/0", "/failures"):
            await page.goto(home + path)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert await serious(page) == [], path


async def indexed(page: Any) -> None:
    """Wait until the page no longer says that a part of the rollouts is still to be read."""
    async with asyncio.timeout(120):
        while "are indexed" in await page.inner_text("body"):
            await asyncio.sleep(0.5)
            await page.reload()


async def tiles(page: Any) -> dict[str, str]:
    found = await page.locator("dl.tiles > *").all_inner_texts()
    return {lines[0].strip().lower(): lines[1].strip() for lines in (text.splitlines() for text in found)}


async def overview(page: Any, saved: Sequence[SavedRollout], directory: Path) -> None:
    shown = await tiles(page)
    sampled = [one.result.sampled_tokens for one in saved]
    assert shown["rollouts"] == f"{len(saved):,}"
    assert shown["solved"] == f"{100 * statistics.fmean(one.verdict.solved for one in saved):.1f}%"
    assert shown["mean reward"] == f"{statistics.fmean(one.reward.value for one in saved):.3f}"
    assert shown["turns each"] == f"{statistics.fmean(len(one.result.steps) for one in saved):.1f}"
    assert sum(sampled) > 0
    metrics = json.loads((directory / "metrics.json").read_text())
    assert shown["infrastructure failures"] == f"{sum(metrics['failures'].values()):,}"
    text = await page.inner_text("#figures")
    with contextlib.closing(sqlite3.connect(directory / "state.db")) as db:
        for state, number in db.execute("SELECT state, count(*) FROM groups GROUP BY state"):
            assert re.search(rf"{state}\s+{number}\b", text), (state, number, text)
        assert members(text) == db.execute("SELECT count(*) FROM members").fetchone()[0]


async def steps(page: Any, home: str, saved: Sequence[SavedRollout]) -> None:
    by_step = defaultdict(list)
    for one in saved:
        by_step[one.seat.step].append(one)
    await page.goto(f"{home}/steps")
    rows = [[cell.strip() for cell in row.split("\t")] for row in await page.locator("tbody tr").all_inner_texts()]
    assert len(rows) == len(by_step)
    for row in rows:
        mine = by_step[int(row[0])]
        assert row[2:4] == [str(len(mine)), f"{statistics.fmean(one.reward.value for one in mine):.3f}"]


async def groups(page: Any, home: str, directory: Path) -> None:
    with contextlib.closing(sqlite3.connect(directory / "state.db")) as db:
        journal = defaultdict(dict)
        for number, member, reward in db.execute("SELECT number, member, reward FROM members"):
            journal[number][member] = reward
    assert journal
    for number, rewards in journal.items():
        await page.goto(f"{home}/groups/{number}")
        heads = await page.locator("article.member h2").all_inner_texts()
        shown = {int(words[1]): words[2] for words in map(str.split, heads) if len(words) > 2}
        assert {member: float(shown[member]) for member in rewards} == pytest.approx(rewards, abs=5e-3)


async def searched(page: Any, home: str, saved: Sequence[SavedRollout], directory: Path) -> None:
    """A task's own words, the filters, and a link to a turn."""

    async def count(query: str) -> int:
        await page.goto(f"{home}/rollouts?{query}")
        return int((await page.inner_text("#count")).split()[0].replace(",", ""))

    solved = sum(one.verdict.solved for one in saved)
    assert await count("outcome=solved") == solved
    task = saved[0].task_id
    assert await count(f"task={task}") == sum(one.task_id == task for one in saved)
    for stop in {one.result.stop_reason for one in saved}:
        assert await count(f"stop={stop.value}") == sum(one.result.stop_reason is stop for one in saved)
    assert await count("least=0.5") == sum(one.reward.value >= 0.5 for one in saved)
    called = [{call.name for step in one.result.steps for call in step.calls} for one in saved]
    assert await count("tool=terminal") == sum("terminal" in names for names in called)
    assert await count("q=zzznothingsaysthis") == 0
    word = re.search(r"[a-z]{5,}", saved[0].result.steps[0].response)[0]
    found = await count(f"q={word}")
    assert 0 < found <= sum(word in line.lower() for part in saved_parts(directory) for line in part.splitlines())
    await page.locator(".line a").first.click()
    await page.wait_for_url(re.compile(r"/rollouts/\d+\?q="))


def saved_parts(directory: Path) -> list[str]:
    return [part.read_text() for part in sorted(directory.glob("rollouts*.jsonl"))]


async def tokens(page: Any, home: str, saved: Sequence[SavedRollout]) -> None:
    """The newest rollout, token by token."""
    await page.goto(f"{home}/rollouts?order=newest")
    await page.locator(".line a").first.click()
    await page.wait_for_url(re.compile(r"/rollouts/\d+"))
    await page.wait_for_load_state("networkidle")
    await page.keyboard.press("t")
    await page.wait_for_url(re.compile("/tokens"))
    row = saved[-1].result.segments[0]
    trained = sum(label >= 0 for label in row.masked_tokens)
    assert f"{len(row.tokens):,} tokens, {trained:,} trained" in await page.inner_text(".crumbs")
    assert await page.locator("#row i").count() == min(len(row.tokens), 4000)


async def evaluations_are_compared(browser: Any, site: str, run: Path) -> None:
    page = await open_page(browser)
    await page.goto(site)
    await page.get_by_text("Compare eval-000000 with eval-000002").click()
    rows = {row.split("\t")[0].strip(): row for row in await page.locator("tbody tr").all_inner_texts()}
    for name in ("eval-000000", "eval-000002"):
        (path,) = (run / name).glob("eval-*.json")
        for task in json.loads(path.read_text())["tasks"]:
            assert f"{task['solved']}/{task['samples']}" in rows[task["task_id"]]
