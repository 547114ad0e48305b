"""The pages about rollouts: what stands there is what they say."""

from __future__ import annotations

import asyncio
import copy
import re
from dataclasses import replace

import pytest
from elements import places, shown
from shown_runs import GROUPS, indexed, make_run, member_of
from starlette.testclient import TestClient

from envs.records.atif import KEY
from envs.runs import reading
from envs.runs.reading import read_document
from envs.viewer import rollout_pages
from envs.viewer.filling import Filling
from envs.viewer.pages import Pages
from envs.viewer.runs import open_runs


def test_a_rollout_says_why_it_has_its_score(client):
    (place,) = places(client, query="?q=needle_0_1")
    page = shown(client, f"/0/rollouts/{place}")
    assert "The verifier gave 0: not solved, 1 of 2 tests passed." in page.text
    assert "Its group has the rewards 1, 0, 0, 1: mean 0.500, standard deviation 0.500" in page.text
    assert "its advantage is -1.000" in page.text
    assert "cat needle_0_1.py" in page.text


def test_a_rollout_that_its_group_does_not_count_says_so(client, run_dir, tmp_path):
    page = shown(client, f"/0/rollouts/{places(client, query='?q=needle_0_1')[0]}")
    assert "does not count this rollout" not in page.text


def test_the_words_of_a_rollout_lead_to_its_turn(client):
    html = client.get("/0/rollouts?q=needle_2_3").text
    assert "<mark>needle_2_3</mark>" in html
    assert re.search(r"/KEY/0/rollouts/\d+\?q=needle_2_3#turn-1", html)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("?task=add-numbers", 10),
        ("?task=add-numbers&kind=training", 8),
        ("?kind=evaluation", 2),
        ("?tag=parse-dates", 4),
        ("?sign=read_tests", 1),
        ("?outcome=solved", 6),
        ("?least=0.5&most=0.9", 1),
        ("?step=1-2", 10),
        ("?stop=answered", 16),
        ("?tool=terminal", 16),
        ("?trouble=malformed+call", 16),
        ("?trouble=drift", 0),
        ("?q=haystack", 14),
        ("?q=haystack&where=instruction", 0),
        ("?q=haystack&where=output&outcome=solved", 5),
        ("?q=hayst*", 14),
        ("?q=%22the+haystack+of%22", 14),
    ],
)
def test_filters_find_what_fits(client, query, count):
    assert len(places(client, query=query)) == count


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("?step=x", "step &#39;x&#39; is no number"),
        ("?order=up", "order &#39;up&#39; is not one of"),
        ("?page=0", "is no number of a page"),
        ("?q=%3D%3D", "has no word"),
        ("?least=1e999x", "is no number"),
    ],
)
def test_a_filter_that_can_not_be_followed_is_named(client, query, said):
    answer = client.get(f"/0/rollouts{query}")
    assert answer.status_code == 400
    assert said in answer.text


def test_words_are_never_operators(client):
    for words in ('"', "NEAR(", "a OR b", "x*y", "-x", "col:x", "a AND", "(", "'; DROP TABLE rollouts; --a"):
        assert client.get("/0/rollouts", params={"q": words}).status_code in (200, 400)


def test_a_rollouts_id_leads_to_it(client):
    (place,) = places(client, query="?q=needle_2_2")
    assert client.get("/0/rollout/r-2-2").url.path == f"/KEY/0/rollouts/{place}"
    assert client.get("/0/rollout/nobody").status_code == 404


def test_a_rollout_can_be_had_as_it_is_saved(client):
    answer = client.get("/0/rollouts/0/raw")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.json()["extra"][KEY]["id"] == "r-0-0"


def test_a_line_of_ten_megabytes_is_shown_and_cut(client):
    (place,) = places(client, 1, "?step=1")
    answer = client.get(f"/1/rollouts/{place}")
    assert "characters are not shown" in answer.text
    assert len(answer.content) < 200_000


def places_of(value, path=()):
    """Yield the ways to all values of a document."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places_of(one, (*path, key))


def spoilt(document, path, by):
    """A document with another value in one place."""
    if not path:
        return by
    made = copy.copy(document)
    made[path[0]] = spoilt(document[path[0]], path[1:], by)
    return made


def test_a_rollout_with_a_spoilt_value_is_shown_or_called_damaged(run_dir, tmp_path, monkeypatch):
    place = 0
    document = read_document(run_dir, place)
    with Filling([]) as filling, TestClient(Pages(open_runs([run_dir]), filling, "KEY").app()) as client:
        seen = set()
        for number, path in enumerate(places_of(document)):
            by = (True, 7, {"a": None}, [None], "x", None)[number % 6]
            made = spoilt(document, path, by)
            monkeypatch.setattr(rollout_pages, "read_document", lambda *_, made=made: made)
            monkeypatch.setattr(reading, "read_document", lambda *_, made=made: made)
            for page in ("", "/tokens"):
                answer = client.get(f"/KEY/0/rollouts/{place}{page}")
                assert answer.status_code in (200, 404) and "content-security-policy" in answer.headers, (path, by)
                seen.add(answer.status_code)
        assert seen == {200, 404}


@pytest.fixture
def mixed(tmp_path):
    """The page of a run of two agents, whose first made its conversation shorter."""
    first, second = (member_of(0, GROUPS[0], member) for member in (0, 1))
    (data,) = first.result.segments
    steps = tuple(replace(step, segment=step.index) for step in first.result.steps)
    parts = replace(first.result, segments=(data, replace(data, segment=1)), steps=steps)
    ours = replace(first, result=parts, seat=replace(first.seat, agent="atropos"))
    also = [ours, replace(second, seat=replace(second.seat, agent="codex"))]
    directory = asyncio.run(make_run(tmp_path / "mixed", (), also))
    indexed(directory)
    runs = open_runs([directory])
    with Filling([]) as filling, TestClient(Pages(runs, filling, "KEY").app(), "http://127.0.0.1/KEY") as client:
        yield client


def test_each_rollout_of_a_mix_names_its_agent(mixed):
    html = mixed.get("/0/rollouts").text
    assert re.findall(r'<td data-label="agent">(.*?)</td>', html) == ["codex", "atropos"]
    assert "agent codex ·" in mixed.get(f"/0/rollouts/{places(mixed)[0]}").text


def test_a_run_of_one_agent_has_no_column_for_it(client):
    assert 'data-label="agent"' not in client.get("/0/rollouts").text


def test_rows_of_a_rollout_are_lanes_with_their_turns_and_begin_in_the_conversation(mixed):
    html = mixed.get(f"/0/rollouts/{places(mixed)[1]}").text
    lanes = re.findall(r'<span class="lane">(.*?)</span>', html)
    assert lanes == ['<a href="#turn-1">1</a><i></i>', '<i></i><a href="#turn-2">2</a>']
    assert re.findall(r'<p class="new-row">(.*?)</p>', html) == ["row 1 of 2", "row 2 of 2"]
