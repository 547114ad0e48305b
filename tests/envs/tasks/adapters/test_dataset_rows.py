"""Rows of a dataset: how they are read, and what is said of one that can't be used."""

import gzip
import json
import os
import re
import tracemalloc

import pytest

from envs.tasks.adapters.dataset_rows import Row, convert_rows, read_rows
from envs.tasks.adapters.directory import make_task_toml, write_task
from envs.types import BadTask, BadTasks


def named(row, out):
    files = {
        "task.toml": make_task_toml("x"),
        "instruction.md": "Do it.",
        "tests/test.sh": row.text("test", default="true"),
    }
    return write_task(out, row.text("id"), {**files, "environment/Dockerfile": "FROM scratch\nWORKDIR /app\n"})


def test_rows_come_with_their_file_and_number(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n\n{"id": "b"}\n')
    rows = [read() for _, read in read_rows(tmp_path / "rows.jsonl")]
    assert [(row.text("id"), row.where) for row in rows] == [("a", "rows.jsonl:1"), ("b", "rows.jsonl:3")]


def test_a_json_file_holds_a_list_or_a_single_row(tmp_path):
    (tmp_path / "rows.json").write_text('[{"id": "a"}, {"id": "b"}]')
    (tmp_path / "row.json").write_text('{"id": "c"}')
    assert [task.id for task in convert_rows(tmp_path / "rows.json", tmp_path / "out", named)] == ["a", "b"]
    assert [task.id for task in convert_rows(tmp_path / "row.json", tmp_path / "out", named)] == ["c"]


def test_all_bad_rows_are_named_at_once_and_the_others_can_be_used(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": ""}\n{"id": "b"}\n{"id": 5}\n')
    with pytest.raises(BadTasks) as raised:
        convert_rows(tmp_path / "rows.jsonl", tmp_path / "out", named)
    assert "- rows.jsonl:1: id is missing or empty\n- rows.jsonl:3: id is int, not text" in str(raised.value)
    assert [task.id for task in raised.value.usable] == ["b"]


@pytest.mark.parametrize(
    ("ids", "tests", "usable"),
    [
        (["a", "b", "a"], ["1", "1", "2"], ["b"]),
        (["a", "a", "a", "a"], ["1", "2", "1", "2"], []),
        (["x/1", "x-1", "c"], ["1", "2", "1"], ["c"]),
        (["x/1", "x-1"], ["1", "1"], ["x-1"]),
    ],
)
def test_of_different_rows_with_one_name_none_is_used(tmp_path, ids, tests, usable):
    rows = [json.dumps({"id": name, "test": test}) for name, test in zip(ids, tests, strict=True)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    try:
        found = convert_rows(tmp_path / "rows.jsonl", tmp_path / "out", named)
    except BadTasks as error:
        assert "neither is used: convert the rows one by one, each with its own --out" in str(error)
        found = error.usable
    assert [task.id for task in found] == usable == [folder.name for folder in (tmp_path / "out").glob("*")]


def test_an_id_that_makes_no_name_of_a_folder_removes_nothing(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": "a"}\n{"id": "問題"}\n{"id": ".."}\n')
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").touch()
    with pytest.raises(BadTasks, match=r"rows\.jsonl:2: the id '問題' makes no folder's name"):
        convert_rows(tmp_path / "rows.jsonl", tmp_path / "out", named)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a", "mine"]


def test_lines_without_an_object_are_refused_with_their_numbers_and_the_others_can_be_used(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b'{"id": "a"}\n5\n{"id": "\xff"}\n{"id": "b"}\n{"id": "c"')
    with pytest.raises(BadTasks) as raised:
        convert_rows(tmp_path / "rows.jsonl", tmp_path / "out", named)
    for said in ("2 is no JSON object", "3 is not valid JSON: .*0xff", "5 is not valid JSON: "):
        assert re.search(rf"- rows\.jsonl:{said}", str(raised.value))
    assert [task.id for task in raised.value.usable] == ["a", "b"]


def test_of_a_file_that_is_cut_the_rows_before_can_be_used(tmp_path):
    lines = "".join(json.dumps({"id": f"a{number}", "more": os.urandom(50).hex()}) + "\n" for number in range(9))
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(lines.encode())[:-200])
    with pytest.raises(BadTasks, match=r"- rows\.jsonl\.gz can't be read: .*; the rows before were read") as raised:
        convert_rows(tmp_path / "rows.jsonl.gz", tmp_path / "out", named)
    assert [task.id for task in raised.value.usable][:2] == ["a0", "a1"]


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl", "rows.jsonl.gz"])
def test_few_rows_of_a_file_are_in_memory_at_once(tmp_path, name):
    path, rows = tmp_path / name, [{"id": "a", "text": f"{n:06}" * 20_000} for n in range(300)]
    if path.suffix == ".parquet":
        pandas = pytest.importorskip("pandas")
        pandas.DataFrame(rows).to_parquet(path, row_group_size=50)
    else:
        lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(lines, 1) if path.suffix == ".gz" else lines)
    next(read_rows(path))  # what it imports stays
    tracemalloc.start()
    try:
        assert sum(len(read().values["text"]) for _, read in read_rows(path)) == 300 * 120_000
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "a" * 256}, "the id 'aaa.* has 256 characters, too many for a folder's name"),
        ({"id": "a", "test": "\ud83d"}, r"a: tests/test\.sh: half of a surrogate pair \(\\ud83d\) is no text"),
    ],
)
def test_what_can_not_be_written_costs_its_row_alone(tmp_path, row, said):
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + '\n{"id": "b"}\n')
    with pytest.raises(BadTasks, match=rf"- rows\.jsonl:1: {said}") as raised:
        convert_rows(tmp_path / "rows.jsonl", tmp_path / "out", named)
    assert [task.id for task in raised.value.usable] == ["b"]


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
    assert [read().values["a"] for _, read in read_rows(tmp_path / "rows.jsonl")] == [1, 2]


def test_where_no_row_can_be_used_no_folder_is_made(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"id": ""}\n')
    with pytest.raises(BadTasks):
        convert_rows(tmp_path / "rows.jsonl", tmp_path / "out", named)
    assert not (tmp_path / "out").exists()
