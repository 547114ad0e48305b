"""The page's addresses: what stands there is what the journal and the rollouts say."""

from __future__ import annotations

import re

import pytest
from elements import Elements, shown
from samples import HOSTILE

from envs.viewer.policy import POLICY

ADDRESSES = (
    *("/", "/0/", "/0/steps", "/0/rollouts", "/0/rollouts/0", "/0/rollouts/0/tokens", "/0/groups", "/0/groups/0"),
    *("/0/groups/3", "/0/failures", "/compare", "/1/", "/1/rollouts", "/1/rollouts/0", "/1/rollouts/0/tokens"),
    *("/0/rollouts?step=x", "/0/nowhere", "/0/rollouts/7"),
    *(f"/0/groups/{10**30}", f"/0/rollouts/{10**30}", "/0/rollouts?q=a%00b"),
)


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


@pytest.mark.parametrize("path", [*ADDRESSES, "/0/evaluations"])
def test_a_table_and_what_the_keys_stop_at_have_a_name(client, path):
    opened = re.findall(r"<table[^>]*>\s*(?:<caption)?|<\w+[^>]* tabindex=.0.[^>]*>", client.get(path).text)
    assert [tag for tag in opened if not tag.endswith("<caption") and "aria-label" not in tag] == []


def test_without_the_key_nothing_is_told(client):
    for path in ("/", "/0/", "/static/page.js", "/KEX/0/"):
        assert client.get(f"http://127.0.0.1{path}").status_code == 404


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
