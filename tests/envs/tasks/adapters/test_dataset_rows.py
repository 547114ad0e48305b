"""Rows of a dataset: how they are read, and what is said of one that can't be used."""

import pytest

from envs.tasks.adapters.dataset_rows import Row, convert_rows, read_rows
from envs.types import BadTask, BadTasks, Task


def named(row, out):
    return Task(row.text("id"), "Do it.")


def test_rows_come_with_their_file_and_number(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n\n{"id": "b"}\n')
    rows = list(read_rows(tmp_path / "rows.jsonl"))
    assert [(row.text("id"), row.where) for row in rows] == [("a", "rows.jsonl:1"), ("b", "rows.jsonl:3")]


def test_a_json_file_holds_a_list_or_a_single_row(tmp_path):
    (tmp_path / "rows.json").write_text('[{"id": "a"}, {"id": "b"}]')
    (tmp_path / "row.json").write_text('{"id": "c"}')
    assert [task.id for task in convert_rows(tmp_path / "rows.json", tmp_path, named)] == ["a", "b"]
    assert [task.id for task in convert_rows(tmp_path / "row.json", tmp_path, named)] == ["c"]


def test_all_bad_rows_are_named_at_once_and_the_others_can_be_used(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": ""}\n{"id": "b"}\n{"id": 5}\n')
    with pytest.raises(BadTasks) as raised:
        convert_rows(tmp_path / "rows.jsonl", tmp_path, named)
    assert "- rows.jsonl:1: id is missing or empty\n- rows.jsonl:3: id is int, not text" in str(raised.value)
    assert [task.id for task in raised.value.usable] == ["b"]


def test_what_is_no_object_is_refused_with_its_number(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n5\n')
    with pytest.raises(BadTask, match=r"rows.jsonl:2 is no JSON object"):
        list(read_rows(tmp_path / "rows.jsonl"))


def test_lists_and_objects_may_be_written_as_json_in_a_text():
    row = Row({"tests": '["a", "b"]', "config": '{"log": "x"}', "bad": "[", "odd": [1]}, "here")
    assert row.texts("absent", "tests") == ["a", "b"]
    assert row.texts("absent") == []
    assert row.table("config") == {"log": "x"}
    with pytest.raises(BadTask, match="here: bad is neither a list nor a list in JSON"):
        row.texts("bad")
    with pytest.raises(BadTask, match="here: odd must be a list of texts"):
        row.texts("odd")
    with pytest.raises(BadTask, match="here: tests is missing or not an object"):
        row.table("tests")


def test_a_file_that_is_no_parquet_is_named(tmp_path):
    (tmp_path / "rows.parquet").write_bytes(b"")
    with pytest.raises(BadTask, match=r"rows.parquet can't be read as Parquet: .*0 bytes"):
        list(read_rows(tmp_path / "rows.parquet"))


def test_a_file_of_windows_may_begin_with_its_mark(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n{"a": 2}\r\n')
    assert [row.values["a"] for row in read_rows(tmp_path / "rows.jsonl")] == [1, 2]
