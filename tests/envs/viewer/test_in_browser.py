"""The page in a real browser: beside a real run and after it was killed, every number is the journal's."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser import browsing, complaints, members, more_members, open_page, serious
from samples import rollout, task
from shown_runs import Made, evaluated, indexed, make_run

from atropos_agent.types import IGNORED, SequenceData
from envs.types import Seat
from envs.viewer.door import address, listen
from envs.viewer.runs import open_runs
from envs.viewer.server import serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOOKS = [(phone, dark) for phone in (False, True) for dark in (False, True)]


@pytest.fixture(scope="module")
def site(run_dir, hostile_dir, tmp_path_factory) -> Iterator[str]:
    """The address of the page of three runs: an ordinary one, a hostile one, and one to compare with, with a row
    of 200,000 tokens."""
    tokens = tuple(range(3, 200_003))
    own = (IGNORED, *tokens[1:])
    data = SequenceData("", tokens, own, (1.0, *[-0.5] * 199_999))
    one = rollout("long-row", of=task("add-numbers"), seat=Seat(step=9))
    also = [evaluated(f"x-{n}", True) for n in range(4)]
    also.append(replace(one, result=replace(one.result, segments=(data,), steps=())))
    groups = (Made("add-numbers", (1.0, 1.0, 1.0, 1.0)), Made("parse-dates", (1.0, 0.0, 1.0, 1.0)))
    other = asyncio.run(make_run(tmp_path_factory.mktemp("compared") / "other", groups, also))
    indexed(other)
    listening = listen("127.0.0.1", 0)
    servers = []
    runs = open_runs([run_dir, hostile_dir, other])
    thread = threading.Thread(target=serve, args=(runs, listening, "KEY", servers.append))
    thread.start()
    yield address(listening, "KEY").rstrip("/")
    servers[0].should_exit = True
    thread.join(120)


async def settled(page) -> None:
    await page.wait_for_load_state("networkidle")


PATHS = (
    *(
        "/",
        "/0/",
        "/0/evaluations",
        "/0/steps",
        "/0/rollouts",
        "/0/rollouts?q=needle_0_1",
        "/0/rollouts/0",
        "/0/rollouts/0/tokens",
    ),
    *("/0/groups", "/0/groups/1", "/0/failures", "/compare?a=0&b=2", "/1/rollouts", "/1/rollouts/0", "/0/nowhere"),
)


@pytest.mark.parametrize(("phone", "dark"), LOOKS)
async def test_no_page_has_a_serious_fault_or_is_wider_than_the_window(site, phone, dark):
    async with browsing() as browser:
        page = await open_page(browser, phone=phone, dark=dark)
        with complaints(page) as said:
            faults = {}
            for path in PATHS:
                await page.goto(site + path)
                await settled(page)
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
                wide = "[...document.querySelectorAll('.tiles div')].filter((one) => one.scrollWidth > one.clientWidth)"
                assert await page.evaluate(f"{wide}.map((one) => one.innerText)") == [], path
                if found := await serious(page):
                    faults[path] = found
            assert faults == {}
        assert [text for text in said if "404" not in text] == []


async def test_the_table_of_steps_fits_a_window_of_1280_pixels(site):
    async with browsing() as browser:
        page = await open_page(browser)
        await page.goto(site + "/0/steps")
        await page.evaluate("for (const cell of steps.querySelectorAll('td.n')) cell.textContent = '1,234.56'")
        assert await page.evaluate("steps.scrollWidth - steps.clientWidth") == 0


PLOTS_SEEN = """
let made;
window.plots = [];
const seen = function (...given) { const plot = new made(...given); window.plots.push(plot); return plot; };
Object.defineProperty(window, "uPlot", { get: () => made && seen, set: (real) => { made = real; } });
"""


async def test_no_chart_has_a_half_of_a_step(site):
    async with browsing() as browser:
        page = await open_page(browser)
        await page.add_init_script(PLOTS_SEEN)
        await page.goto(site + "/0/")
        await settled(page)
        marks = await page.evaluate("plots.filter((one) => !one.scales.x.time).map((one) => one.axes[0]._splits)")
        assert marks and all(len(one) > 1 and all(mark % 1 == 0 for mark in one) for one in marks), marks


async def test_a_long_name_is_apart_from_its_figures(site):
    async with browsing() as browser:
        page = await open_page(browser)
        await page.goto(site + "/0/")
        await page.evaluate(
            "document.querySelector('.counts li').innerHTML = "
            "'<a>claude-code</a><span>11 rollouts, 36% solved, mean reward 0.409</span>'"
        )
        edge = "document.querySelector('.counts li {0}').getBoundingClientRect().{1}"
        assert await page.evaluate(f"{edge.format('span', 'left')} - {edge.format('a', 'right')}") >= 12


async def test_at_zoom_of_400_percent_no_page_is_wider_than_the_window(site):
    async with browsing() as browser:
        page = await open_page(browser)
        await page.set_viewport_size({"width": 320, "height": 225})
        for path in PATHS:
            await page.goto(site + path)
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path


async def test_everything_is_reached_by_keys(site):
    async with browsing() as browser:
        page = await open_page(browser)
        await page.goto(f"{site}/0/")
        for key, path in (("r", "/0/rollouts"), ("g", "/0/groups"), ("f", "/0/failures"), ("o", "/0/")):
            await page.keyboard.press(key)
            await page.wait_for_url(f"{site}{path}")
        await page.keyboard.press("/")
        await page.keyboard.type("haystack")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"{site}/0/rollouts?q=haystack")
        assert "14 rollouts" in await page.inner_text("#count")
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        second = await page.locator(".line a").first.get_attribute("href")
        await page.keyboard.press("Enter")
        await page.wait_for_url(re.compile(r"/0/rollouts/\d+\?q=haystack#turn-1"))
        first_url = page.url
        await page.keyboard.press("]")
        await page.wait_for_url(lambda url: url != first_url and "q=haystack" in url)
        await page.keyboard.press("[")
        await page.wait_for_url(lambda url: url.split("#")[0] == first_url.split("#")[0])
        await page.keyboard.press("t")
        await page.wait_for_url(re.compile("/tokens"))
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("ArrowRight")
        assert (await page.inner_text("#token")).startswith("token 1:")
        assert page.url.endswith("#t1")
        await page.keyboard.press("t")
        await page.wait_for_url(re.compile(r"/0/rollouts/\d+$"))
        await page.keyboard.press("u")
        await page.wait_for_url(re.compile("/0/groups/"))
        kept = "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', cancelable: true}))"
        assert await page.evaluate(kept), "members side by side can't be scrolled by keys"
        await page.keyboard.press("?")
        assert await page.locator("dialog[open]").count() == 1
        assert second


async def test_a_link_to_a_turn_and_to_a_token_leads_there(site):
    async with browsing() as browser:
        page = await open_page(browser)
        await page.goto(f"{site}/0/rollouts/0#turn-2")
        assert await page.locator("#turn-2:target").count() == 1
        await page.goto(f"{site}/0/rollouts/0/tokens?row=0&at=5#t5")
        assert (await page.inner_text("#token")).startswith("token 5:")


async def test_two_hundred_thousand_tokens_are_there_within_a_second(site):
    async with browsing() as browser:
        page = await open_page(browser)
        await page.goto(f"{site}/2/rollouts?step=9")
        link = await page.locator(".line a").first.get_attribute("href")
        base = site.rsplit("/", 1)[0]
        await page.goto(f"{base}{link.split('?')[0]}/tokens?at=150000#t150000")
        assert (await page.inner_text("#token")).startswith("token 150,000:")
        times = []
        for _ in range(3):
            await page.reload()
            timing = "(() => { const n = performance.getEntriesByType('navigation')[0]; return n.domComplete; })()"
            times.append(await page.evaluate(timing))
        assert await page.locator("#row i").count() == 4000
        print(f"200,000 tokens: {min(times):.0f} ms")


async def test_runs_are_compared_as_their_rollouts_say(site):
    async with browsing() as browser:
        page = await open_page(browser)
        await page.goto(f"{site}/compare?a=0&b=2&kind=training")
        rows = await page.locator("tbody tr").all_inner_texts()
        found = {row.split("\t")[0].strip(): row for row in rows}
        assert "5/8" in found["add-numbers"]
        assert "5/5" in found["add-numbers"]
        assert "0/4" in found["parse-dates"]
        assert "3/4" in found["parse-dates"]
        assert "+75%" in found["parse-dates"]


async def test_nothing_that_a_rollout_wrote_runs(site):
    async with browsing() as browser:
        page = await open_page(browser)
        with complaints(page) as said:
            page.on("dialog", lambda dialog: said.append(dialog.message))
            await page.goto(f"{site}/1/rollouts")
            links = [await link.get_attribute("href") for link in await page.locator(".line td:first-child a").all()]
            base = site.rsplit("/", 1)[0]
            for link in links:
                await page.goto(base + link)
                assert (
                    await page.evaluate("document.querySelectorAll('main script, main img, main iframe').length") == 0
                )
            await page.goto(f"{base}{links[-1]}/tokens")
        assert said == []
        assert len(links) == 11


RUN = Path(__file__).with_name("live_program.py")


async def test_beside_a_run_and_after_it_was_killed_every_number_is_the_journals(tmp_path, tokenizer_folder):
    directory = tmp_path / "run"
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, str(RUN), str(directory), tokenizer_folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said = ""
    while (found := re.search(r"the page: (http\S+)/\n", said)) is None:
        line = await program.stdout.readline()
        assert line, said
        said += line.decode()
    drain = asyncio.create_task(program.stdout.read())
    async with browsing() as browser:
        page = await open_page(browser)
        with complaints(page) as complained:
            await page.goto(f"{found[1]}/0/")
            before = await more_members(page, 0)
            assert await page.inner_text("#live") == "goes on"
            # A screen reader stays in what it reads.
            await page.evaluate("document.querySelector('#figures .tiles dd').read = true")
            await more_members(page, before)
            assert await page.evaluate("document.querySelector('#figures .tiles dd').read")
            assert complained == []
        program.kill()
        await program.wait()
        await drain
    indexed(directory)
    listening = listen("127.0.0.1", 0)
    servers: list[object] = []
    thread = threading.Thread(target=serve, args=(open_runs([directory]), listening, "KEY", servers.append))
    thread.start()
    try:
        async with browsing() as browser:
            page = await open_page(browser)
            await page.goto(address(listening, "KEY") + "0/")
            await settled(page)
            text = await page.inner_text("#figures")
            with contextlib.closing(sqlite3.connect(directory / "state.db")) as db:
                states = dict(db.execute("SELECT state, count(*) FROM groups GROUP BY state"))
                (count,) = db.execute("SELECT count(*) FROM members").fetchone()
                rows = db.execute("SELECT number, member, reward FROM members ORDER BY number DESC LIMIT 12").fetchall()
            assert members(text) == count
            for state, number in states.items():
                assert re.search(rf"{state}\s+{number}\b", text)
            for number, member, reward in rows:
                await page.goto(address(listening, "KEY") + f"0/groups/{number}")
                shown = await page.locator("article.member h2").nth(member).inner_text()
                assert shown.split()[2] == f"{reward:g}"
    finally:
        servers[0].should_exit = True
        thread.join(120)


async def test_the_exported_file_needs_no_server_and_is_good_on_a_phone(run_dir, tmp_path):
    from envs.viewer.command import main

    path = tmp_path / "page.html"
    assert await asyncio.to_thread(main, [str(run_dir), "--export", str(path), "--latest", "8"]) == 0
    async with browsing() as browser:
        for phone, dark in LOOKS:
            page = await open_page(browser, phone=phone, dark=dark)
            with complaints(page) as said:
                await page.goto(path.as_uri())
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                await page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
                assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
                assert await serious(page) == []
            assert said == [path.as_uri()]
