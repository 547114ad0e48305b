"""How busy a server is, read from its page of metrics."""

import pytest

from atropos_agent.engines.load import Load, read_load


def test_the_load_is_summed_over_labels():
    page = 'vllm:num_requests_running{a="1"} 2\nvllm:num_requests_running{a="2"} 3\nother 7\n'
    assert read_load(page) == Load(5.0, 0.0, 0.0)


def test_a_page_of_something_else_tells_no_load():
    assert read_load("other 7\n") is None


@pytest.mark.parametrize("end", ["", " ", " 3 oops", " NaN", " +Inf", " -1", '{a="1"', " \x00", "{", " 1e999"])
def test_a_page_that_is_torn_or_makes_no_sense_tells_no_load(end):
    assert read_load(f"vllm:num_requests_waiting 1\nvllm:num_requests_running{end}") is None
