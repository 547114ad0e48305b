"""The pages about a run: what stands there is what the journal says."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3

import orjson
import pytest
from elements import shown
from shown_runs import GROUPS, Made, indexed, make_run
from starlette.testclient import TestClient

from envs.records.metrics import Metrics
from envs.types import GroupState
from envs.viewer.filling import Filling
from envs.viewer.pages import Pages
from envs.viewer.runs import open_runs


def test_the_overviews_groups_are_the_journals(client, run_dir):
    page = shown(client, "/0/")
    with contextlib.closing(sqlite3.connect(run_dir / "state.db")) as db:
        for state, count in db.execute("SELECT state, count(*) FROM groups GROUP BY state"):
            assert re.search(rf"{state}\s+{count}\b", page.text), state
        (members,) = db.execute("SELECT count(*) FROM members").fetchone()
    assert f"The journal has {members} rollouts in groups" in page.text
    assert "1 rollout with signs of cheating" in page.text


def test_every_member_of_the_journal_is_in_its_group_with_its_reward_and_its_place(client, run_dir):
    with contextlib.closing(sqlite3.connect(run_dir / "state.db")) as db:
        members = db.execute("SELECT number, member, place, reward FROM members").fetchall()
    for number, member, place, reward in members:
        html = client.get(f"/0/groups/{number}").text
        assert f"/KEY/0/rollouts/{place}" in html
        assert re.search(rf'member {member} <span class="reward \w+">{reward:g}</span>', html)


def test_a_group_says_what_was_asked(client):
    assert re.search(r"what was asked</summary><div[^>]*><pre>\S", client.get("/0/groups/0").text)


def test_what_is_shown_says_itself_to_a_screen_reader(client):
    overview, groups, group = (client.get(path).text for path in ("/0/", "/0/groups", "/0/groups/0"))
    assert re.search(
        r'<p class="unseen">reward: .* at the end, from .*</p>\n<div class="plot" aria-hidden="true">', overview
    )
    assert 'aria-label="Reward' not in overview and 'id="live" role="status"' in overview
    assert '<span class="unseen">member 0 of group 0, reward </span>' in groups
    # The name of a text would be said in the place of its first line; parts of a picture have no stops of their own.
    for html in (group, client.get(re.search(r'/0/rollouts/\d+(?=")', group)[0]).text):
        assert "<pre" in html and not re.search(r"<pre[^>]*aria-label", html)
        assert re.search(r'<svg[^>]*aria-label="[^"]*seconds: [^"]*"><g aria-hidden="true">', html)


def test_a_dropped_group_says_why(client):
    page = shown(client, "/0/groups/1")
    assert "every advantage would be 0" in page.text
    assert "The journal says: all rewards are 0" in page.text


def test_an_unfinished_group_of_a_run_that_is_over_waits_for_nothing(client, monkeypatch):
    monkeypatch.setattr("envs.viewer.frame.goes_on", lambda _: False)
    page = shown(client, "/0/groups/3")
    assert "member 3" in page.text and "not there" in page.text
    assert "not there yet" not in page.text and "being made" not in page.text
    assert "the run ended before all its rollouts were made" in shown(client, "/0/groups").text


def test_a_group_that_is_being_made_shows_which_members_are_missing(client, monkeypatch):
    monkeypatch.setattr("envs.viewer.frame.goes_on", lambda _: True)
    assert "not there yet" in shown(client, "/0/groups/3").text


PATHS = ("", "steps", "rollouts", "rollouts?q=needle_0_1", "rollouts/0", "groups/0", "groups/4", "failures")


@pytest.fixture
async def fresh(tmp_path):
    """The page of a run of which nothing is indexed yet."""
    directory = await make_run(tmp_path / "run", (*GROUPS, Made("begun", (), GroupState.WORKING, "")))
    metrics = Metrics.from_json((directory / "metrics.json").read_bytes())
    metrics.failures_by_step = {"0": {"EngineError": 2}}
    (directory / "metrics.json").write_bytes(metrics.to_json())
    lines = [{"t": float(at), "sampled": 10 * at, "active": 4, "limit": 8} for at in range(3)]
    (directory / "timeline.jsonl").write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    (directory / "run.json").write_bytes(orjson.dumps({"starts": [start(1), start(2)]}))
    runs = open_runs([directory])
    with Filling([]) as filling, TestClient(Pages(runs, filling, "KEY").app(), "http://127.0.0.1/KEY") as client:
        yield client
    runs[0].index.close()


def start(number):
    options = {"tools": ["terminal", "submit"], "seed": number}
    return {
        "at": f"2026-01-0{number}",
        "command": "serve",
        "arguments": ["serve", f"--seed={number}"],
        "options": options,
    }


@pytest.mark.parametrize("path", PATHS)
def test_a_run_is_shown_before_anything_of_it_is_indexed(fresh, path):
    assert fresh.get(f"/0/{path}").status_code == 200


def test_how_it_was_started_is_said_option_by_option(fresh):
    html = fresh.get("/0/").text
    told = dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', html))
    assert told["start 1"] == "2026-01-01 serve --seed=1"
    assert (told["options.tools"], told["options.seed"]) == ("terminal submit", "2")


def test_a_group_leads_to_its_neighbours_as_far_as_there_are_some(client):
    def around(number):
        return {value for name, value in shown(client, f"/0/groups/{number}").attributes if name == "rel"} & {
            "prev",
            "next",
        }

    assert [around(number) for number in (0, 1, 3)] == [{"next"}, {"prev", "next"}, {"prev"}]


def test_what_the_gpu_is_held_up_by_and_the_agents_of_a_mix_are_on_the_overview(fresh, tmp_path):
    path = tmp_path / "run" / "metrics.json"
    metrics = Metrics.from_json(path.read_bytes())
    metrics.supply = "held up by tools: 80% of a rollout's time, 10% for replies"
    metrics.agents = {"codex": {"rollouts": 4, "solved": 1, "reward": 2.0}}
    for _ in range(20):
        metrics.count_group(signal=False)
    path.write_bytes(metrics.to_json())
    text = " ".join(shown(fresh, "/0/").text.split())
    assert "held up by tools: 80% of a rollout's time, 10% for replies." in text
    assert "Rewards differ in 0% of the last 20 groups: too few to learn from" in text
    assert "codex 4 rollouts, 25% solved, mean reward 0.500" in text


def test_evaluations_are_in_the_order_of_their_steps(fresh, tmp_path):
    for step in (8, 12, 0):
        (tmp_path / "run" / f"eval-{step}.json").write_text('{"tasks": [], "unsampled": []}')
    found = re.findall(r"evaluations\?name=(eval-\d+)", fresh.get("/0/").text)
    assert found == ["eval-12", "eval-8", "eval-0"]


def test_a_run_of_one_step_has_no_chart_over_steps(tmp_path):
    directory = asyncio.run(make_run(tmp_path / "one", GROUPS[:1]))
    indexed(directory)
    runs = open_runs([directory])
    with Filling([]) as filling, TestClient(Pages(runs, filling, "KEY").app(), "http://127.0.0.1/KEY") as client:
        html = client.get("/0/").text
    assert "data-chart" not in html and "Charts appear with the second step" in html


def test_a_reason_is_never_cut_in_a_word(client):
    html = client.get("/0/rollouts").text
    assert " …" not in html or not re.search(r"\w…", html)
