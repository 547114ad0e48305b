"""Fields of a body, and errors that name them."""

import pytest

from atropos_agent.gateway import fields
from atropos_agent.gateway.requests import Refusal


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (fields.objects, {"a": 1}),
        (fields.objects, [1]),
        (fields.mapping, [1]),
        (fields.text, 1),
        (fields.text, None),
        (fields.whole, True),
        (fields.whole, -1),
        (fields.whole, "1"),
        (fields.flag, "yes"),
        (fields.strings, [1]),
        (fields.strings, 3),
        (fields.strings, ["x"] * 65),
        (fields.strings, "x" * 1001),
    ],
)
def test_a_wrong_type_is_named(read, value):
    with pytest.raises(Refusal, match=r"a\.b") as caught:
        read(value, "a.b")
    assert caught.value.param.startswith("a.b")


def test_what_is_missing_is_empty():
    assert fields.objects(None, "x") == ()
    assert fields.mapping(None, "x") == {}
    assert fields.text(None, "x", default="") == ""
    assert fields.whole(None, "x") is None
    assert fields.flag(None, "x") is False
    assert fields.strings(None, "x") == ()
    assert fields.strings("a", "x") == ("a",)
