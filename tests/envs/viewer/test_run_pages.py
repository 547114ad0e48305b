"""The pages about a run: what stands there is what the journal says."""

from __future__ import annotations

import re
import sqlite3

from elements import shown


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
