"""Whatever a model wrote becomes something that JSON can hold."""

import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.records.plain import plain, plain_text

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner) | st.tuples(inner),
    max_leaves=10,
)


@given(anything)
def test_everything_can_be_saved(value):
    orjson.dumps(plain(value))


@pytest.mark.parametrize("value", [None, True, 3, -0.5, "漢字", [1, {"a": None}], {"b": [2.5]}])
def test_what_json_holds_stays_as_it_is(value):
    assert plain(value) == value


@pytest.mark.parametrize(
    ("value", "saved"),
    [(math.nan, "nan"), (math.inf, "inf"), (2**64, str(2**64)), ((1, 2), [1, 2]), ({1: 2}, {"1": 2}), (b"x", "b'x'")],
)
def test_what_json_has_no_place_for_becomes_text(value, saved):
    assert plain(value) == saved


def test_half_a_surrogate_pair_becomes_a_question_mark():
    assert plain_text("a\ud800b") == "a?b"


def test_what_is_nested_too_deeply_says_so():
    deep = []
    for _ in range(100):
        deep = [deep]
    assert "nested too deeply" in str(plain(deep))
