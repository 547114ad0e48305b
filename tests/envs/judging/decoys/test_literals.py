"""Of which parts literals are. What they are worth shows in the sets that are made of them (`test_sets`)."""

import pytest
from planted_modules import parsed as syntax

from envs.judging.decoys import literals


@pytest.mark.parametrize(
    "text", ["int(text, 0)", "date(2020, month, 31)", "Decimal(places(3))", "range(0, 9, self.step)"]
)
def test_what_is_called_with_more_than_literals_is_left_alone(text):
    """Another literal there may be refused: there are not 31 days in every month."""
    assert None in list(literals.leaves_of(syntax(text), (), literals.Names({"date": "datetime.date"}, set())))
