"""The page's addresses: what stands there is what the journal and the rollouts say."""

from __future__ import annotations

import re
import sqlite3
from html.parser import HTMLParser

import pytest
from samples import HOSTILE

from envs.records.atif import KEY
from envs.viewer.policy import POLICY

ADDRESSES = (
    *("/", "/0/", "/0/steps", "/0/rollouts", "/0/rollouts/0", "/0/rollouts/0/tokens", "/0/groups", "/0/groups/0"),
    *("/0/groups/3", "/0/failures", "/compare", "/1/", "/1/rollouts", "/1/rollouts/0", "/1/rollouts/0/tokens"),
    *("/0/rollouts?step=x", "/0/nowhere", "/0/rollouts/7"),
)


class Elements(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data):
        self.text += data


def places(client, run=0, query=""):
    """The places of the rollouts in a list, in its order."""
    html = client.get(f"/{run}/rollouts{query}").text
    return list(dict.fromkeys(int(place) for place in re.findall(rf"/KEY/{run}/rollouts/(\d+)", html)))


def shown(client, path):
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return Elements(answer.text)


@pytest.mark.parametrize("path", ADDRESSES)
def test_every_answer_allows_nothing_but_the_pages_own_style_and_script(client, path):
    answer = client.get(path)
    assert answer.headers["content-security-policy"] == POLICY
    assert "unsafe" not in POLICY
    found = Elements(answer.text)
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
    links = [value for name, value in found.attributes if name in ("src", "href", "action")]
    assert all(link.startswith(("/KEY", "#", "?")) for link in links)
    assert found.tags.count("script") == 2
    assert "<style" not in answer.text


def test_without_the_key_nothing_is_told(client):
    for path in ("/", "/0/", "/static/page.js", "/KEX/0/"):
        assert client.get(f"http://127.0.0.1{path}").status_code == 404


def test_the_overviews_groups_are_the_journals(client, run_dir):
    page = shown(client, "/0/")
    with sqlite3.connect(run_dir / "state.db") as db:
        for state, count in db.execute("SELECT state, count(*) FROM groups GROUP BY state"):
            assert re.search(rf"{state}\s+{count}\b", page.text), state
        (members,) = db.execute("SELECT count(*) FROM members").fetchone()
    assert f"The journal has {members} rollouts in groups" in page.text
    assert "1 rollout with signs of cheating" in page.text


def test_every_member_of_the_journal_is_in_its_group_with_its_reward_and_its_place(client, run_dir):
    with sqlite3.connect(run_dir / "state.db") as db:
        members = db.execute("SELECT number, member, place, reward FROM members").fetchall()
    for number, member, place, reward in members:
        html = client.get(f"/0/groups/{number}").text
        assert f"/KEY/0/rollouts/{place}" in html
        assert re.search(rf'member {member} <span class="reward \w+">{reward:g}</span>', html)


def test_a_dropped_group_says_why(client):
    page = shown(client, "/0/groups/1")
    assert "every advantage would be 0" in page.text
    assert "The journal says: all rewards are 0" in page.text


def test_a_group_that_is_being_made_shows_which_members_are_missing(client):
    page = shown(client, "/0/groups/3")
    assert "member 3" in page.text
    assert "not there yet" in page.text


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


def test_a_page_that_shows_all_there_is_gets_an_empty_answer(client):
    html = client.get("/0/").text
    seen = re.search(r'data-seen="(\w+)"', html)[1]
    assert client.get("/0/", headers={"x-seen": seen}).status_code == 204
    assert client.get("/0/", headers={"x-seen": "other"}).status_code == 200


def test_two_runs_are_compared(client):
    page = shown(client, "/compare?a=0&b=0")
    assert "paired over 3 tasks" in page.text
    assert "6/10" in page.text


@pytest.mark.parametrize("path", ["/1/rollouts", "/1/rollouts/0", "/1/rollouts/0/tokens", "/1/"])
def test_nothing_that_a_rollout_wrote_becomes_markup(client, path):
    harmless = set(shown(client, path.replace("/1/", "/0/")).tags)
    page = shown(client, path)
    assert set(page.tags) - harmless <= {"details", "summary", "pre", "ul", "li", "b"}
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    if path == "/1/rollouts/0":
        assert all(text in page.text for text in HOSTILE)
        assert "␛[31mred" in page.text


def test_a_line_of_ten_megabytes_is_shown_and_cut(client):
    (place,) = places(client, 1, "?step=1")
    answer = client.get(f"/1/rollouts/{place}")
    assert "characters are not shown" in answer.text
    assert len(answer.content) < 200_000
