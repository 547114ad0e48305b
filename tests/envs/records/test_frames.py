"""Tables hold every rollout, turn and row of a run."""

import pytest
from samples import renamed, rollout

pa = pytest.importorskip("pyarrow")

from envs.records import frames  # noqa: E402
from envs.records.atif import RolloutWriter  # noqa: E402
from envs.records.frames import SCHEMAS, tables, write_parquet, write_table  # noqa: E402


@pytest.fixture
async def run(tmp_path):
    async with RolloutWriter(tmp_path / "run") as writer:
        for n in range(5):
            await writer.write(renamed(rollout(), f"r-{n}"))
    return tmp_path / "run"


async def test_tables_and_files_say_the_same_however_they_are_cut(run, tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "_TOKENS", 2 * frames._AT_LEAST)
    found = tables(run)
    assert {name: table.num_rows for name, table in found.items()} == {"rollouts": 5, "turns": 10, "rows": 5}
    assert found["rollouts"]["id"].to_pylist() == [f"r-{n}" for n in range(5)]
    for name, path in write_parquet(run, tmp_path / "out").items():
        assert pa.parquet.read_table(path).equals(found[name])


async def test_data_frames_are_one_call_away(run):
    pytest.importorskip("pandas")
    frame = tables(run)["rollouts"].to_pandas()
    assert frame.groupby("task")["reward"].mean().to_dict() == {"fix-the-sum": 1.0}


def test_a_run_without_rollouts_has_empty_tables(tmp_path):
    (tmp_path / "rollouts.jsonl").touch()
    assert {name: table.schema for name, table in tables(tmp_path).items()} == dict(SCHEMAS)


def test_a_table_is_written_in_pieces_whatever_the_first_rows_lack(tmp_path, monkeypatch):
    rows = [
        {"x": 1, "of": {"versions": [None, None], "least": None}},
        {"x": 0.5, "of": {"versions": [None, 3], "least": 3, "ids": [[1, 2]]}},
        {"x": 2, "of": {"versions": [], "least": 4}, "name": "s"},
    ]
    made = []
    monkeypatch.setattr(frames, "_BYTES", 1)
    write_table((made.append(row) or row for row in rows), tmp_path / "out")
    assert pa.parquet.ParquetFile(tmp_path / "out").num_row_groups == len(made) == 3
    usual = [{"name": None, **row, "of": {"ids": None, **row["of"]}} for row in rows]
    assert pa.parquet.read_table(tmp_path / "out").to_pylist() == usual
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_table_without_rows_is_a_file(tmp_path):
    write_table([], tmp_path / "out")
    assert pa.parquet.read_table(tmp_path / "out").num_rows == 0
