"""Output that is kept in a fixed amount of memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes.output import BoundedOutput, dropped_line


class TestBoundedOutput:
    @given(st.lists(st.binary(max_size=50)), st.integers(0, 100))
    def test_it_keeps_the_first_and_the_last_half(self, pieces, limit):
        output = BoundedOutput(limit)
        for piece in pieces:
            output.add(piece)
        whole = b"".join(pieces)
        raw, truncated = output.result()
        if len(whole) <= limit:
            assert (raw, truncated) == (whole, False)
        else:
            head, tail = limit // 2, limit - limit // 2
            middle = dropped_line(len(whole) - limit)
            assert (raw, truncated) == (whole[:head] + middle + whole[len(whole) - tail :], True)

    def test_a_negative_limit_is_refused(self):
        with pytest.raises(ValueError, match="negative"):
            BoundedOutput(-1)
