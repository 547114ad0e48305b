"""How a run went over time: what was written is read, and what is torn is left out."""

import pytest

from envs.records.timeline import FILE_NAME, append, read_timeline


def test_lines_are_read_as_they_were_written(tmp_path):
    lines = [{"t": 1.0, "sampled": 5}, {"t": 2.0, "before": 8, "limit": 16, "why": "doubled"}]
    append(tmp_path, lines[:1])
    append(tmp_path, lines[1:])
    assert read_timeline(tmp_path) == lines
    assert read_timeline(tmp_path / "nowhere") == []


def test_a_torn_line_costs_itself_alone(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b'{"t": 1.0}\n[]\n{"t": 2.')
    append(tmp_path, [{"t": 3.0}])
    assert [line["t"] for line in read_timeline(tmp_path)] == [1.0, 3.0]


@pytest.mark.parametrize(
    "other", ['"t": "x"', '"sampled": "many"', '"limit": [1]', '"why": 3', '"outbox": {"ready": "x"}', '"t": 1e300']
)
def test_a_line_that_holds_something_else_is_left_out(tmp_path, other):
    (tmp_path / FILE_NAME).write_text('{"t": 1.0, "sampled": null}\n{"t": 2.0, ' + other + "}\n")
    assert [line["t"] for line in read_timeline(tmp_path)] == [1.0]
