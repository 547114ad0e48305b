"""The page of evaluations: every attempt, compared, also of an evaluation that came later."""

import shutil
from dataclasses import replace

import orjson
import pytest
from elements import shown
from shown_runs import evaluated, indexed, make_run
from starlette.testclient import TestClient

from envs.records.stats import summarise
from envs.types import Reward, Verdict
from envs.viewer import frame
from envs.viewer.filling import Filling
from envs.viewer.pages import Pages
from envs.viewer.runs import open_runs, run_directories


def write(path, solved):
    rewards = {f"task-{number}": [1.0] * count + [0.0] * (2 - count) for number, count in enumerate(solved)}
    path.write_bytes(orjson.dumps(summarise(rewards, (1, 2)).to_json()))


@pytest.fixture
async def home(tmp_path):
    """The folder of a training run with its evaluations, as `learn` makes it."""
    directory = await make_run(tmp_path / "environment", also=[evaluated("e-0", True), evaluated("e-1", False)])
    indexed(directory)
    for step, solved in ((0, (0, 1, 0, 0, 1, 2)), (4, (1, 1, 2, 0, 2, 2))):
        write(directory / f"eval-{step}.json", solved)
    return tmp_path


@pytest.fixture
def page(home):
    runs = open_runs(run_directories([home]))
    with (
        Filling([]) as filling,
        TestClient(Pages(runs, filling, "KEY", [home]).app(), "http://127.0.0.1/KEY") as client,
    ):
        yield client


def test_it_shows_every_evaluation_and_compares_the_newest_with_the_one_before(page):
    html = page.get("/0/evaluations").text
    text = shown(page, "/0/evaluations").text
    assert "data-chart" in html and "Held-out tasks" in html
    assert "eval-4, task by task" in text and "since eval-0: difference +33%" in text
    assert "pass@2" in text
    assert "goes on, or was cut off" in text, "of the one at step 2 there are attempts and no file"


def test_one_is_chosen_and_its_attempts_lead_to_the_rollouts(page):
    html = page.get("/0/evaluations?name=eval-2").text
    assert html.count('class="attempt good"') == html.count('class="attempt bad"') == 1
    assert "/KEY/0/rollouts/" in html
    assert "By tag" in html
    assert "since eval-4" in shown(page, "/0/evaluations?name=eval-0&against=eval-4").text
    assert page.get("/0/evaluations?name=eval-9").status_code == 404


async def test_rewards_between_0_and_1_have_a_column(tmp_path, page):
    assert "mean reward" not in shown(page, "/0/evaluations?name=eval-2").text
    part = replace(evaluated("p-0", False), verdict=Verdict(0.25, "in part"), reward=Reward(0.25))
    indexed(await make_run(tmp_path / "graded" / "run", (), [part]))
    runs = open_runs([tmp_path / "graded" / "run"])
    with (
        Filling([]) as filling,
        TestClient(Pages(runs, filling, "KEY", [tmp_path]).app(), "http://127.0.0.1/KEY") as client,
    ):
        text = shown(client, "/0/evaluations").text
    assert "mean reward" in text and "0.25" in text


def test_it_shows_each_agent_of_an_evaluation_of_several(home, page):
    agents = {"codex": summarise({"a": [1.0], "b": [1.0]}), "<pi>": summarise({"a": [0.0], "b": [1.0]})}
    both = replace(summarise({"a": [1.0, 0.0], "b": [1.0, 1.0]}), agents=agents)
    (home / "environment" / "eval-8.json").write_bytes(orjson.dumps(both.to_json()))
    text = shown(page, "/0/evaluations?name=eval-8").text
    assert "By agent" in text and "codex" in text and "<pi>" in text and "-50%" in text
    assert "<pi>" not in page.get("/0/evaluations?name=eval-8").text
    assert "By agent" not in shown(page, "/0/evaluations?name=eval-4").text


def test_a_damaged_evaluation_is_left_out(home, page):
    (home / "environment" / "eval-0.json").write_text('{"tasks": [{}]}')
    assert page.get("/0/evaluations").status_code == 200
    assert page.get("/0/evaluations?name=eval-0").status_code == 404


async def test_a_run_without_any_says_how_to_make_one(tmp_path):
    directory = await make_run(tmp_path / "run")
    indexed(directory)
    runs = open_runs([directory])
    with Filling([]) as filling, TestClient(Pages(runs, filling, "KEY").app(), "http://127.0.0.1/KEY") as client:
        assert "No evaluation is there" in shown(client, "/0/evaluations").text
        assert 'evaluations">Evaluations' not in client.get("/0/").text
    runs[0].close()


def test_an_evaluation_that_comes_later_is_there_without_a_restart(home, page, monkeypatch):
    monkeypatch.setattr(frame, "MORE_S", 0.0)
    assert page.get("/1/").status_code == 404
    shutil.copytree(home / "environment", home / "eval-000008", ignore=shutil.ignore_patterns("state.db*", "lock"))
    assert "eval-000008" in page.get("/").text
    assert page.get("/1/").status_code == 200
    seen = page.get("/0/evaluations").text.partition('data-seen="')[2].partition('"')[0]
    assert page.get("/0/evaluations", headers={"x-seen": seen}).status_code == 204
    write(home / "environment" / "eval-16.json", (2,) * 6)
    assert "eval-16" in page.get("/0/evaluations", headers={"x-seen": seen}).text
