"""Filters as addresses say them, and as SQL."""

import pytest
from shown_runs import indexed

from envs.runs.search import BadFilter, Filters, find, neighbours


def test_an_address_says_only_what_is_set():
    filters = Filters.of({"q": ' a "b c" ', "step": "3", "nobody": "x", "task": ""})
    assert filters.words == ["a", "b c"]
    assert filters.query() == {"q": 'a "b c"', "step": "3"}
    assert filters.query(page=2, order="best") == {"q": 'a "b c"', "step": "3", "order": "best", "page": "2"}
    assert Filters.of(filters.query()) == filters
    assert Filters(q="a\0b").words == ["a", "b"], "SQLite's words end there"


@pytest.mark.parametrize("order", ["newest", "oldest", "best", "worst", "longest", "most turns", "slowest"])
def test_every_order_gives_all_of_them(run_dir, order):
    with indexed(run_dir).reading() as db:
        found = find(db, Filters(order=order))
        assert found.count == len(found.rollouts) == 16
        rewards = [row["reward"] for row in found.rollouts]
    if order in ("best", "worst"):
        assert rewards == sorted(rewards, reverse=order == "best")


def test_the_next_rollout_is_the_next_that_fits(run_dir):
    with indexed(run_dir).reading() as db:
        filters = Filters(q="haystack", task="add-numbers")
        order = [row["place"] for row in find(db, filters).rollouts]
        for newer, place, older in zip([None, *order], order, [*order[1:], None], strict=False):
            assert neighbours(db, filters, place) == (newer, older)


def test_a_number_that_is_too_large_is_refused(run_dir):
    with indexed(run_dir).reading() as db, pytest.raises(BadFilter, match="group"):
        find(db, Filters(group="9" * 30))
