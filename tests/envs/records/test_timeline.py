"""How a run went over time: what was written is read, and what is torn is left out."""

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
