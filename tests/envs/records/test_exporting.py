"""`export` writes each form, and says what it can't."""

import errno
import json
import multiprocessing
import os
import signal

import pytest
from samples import renamed, rollout

from envs.records import exporting
from envs.records.atif import RolloutWriter
from envs.records.exporting import main
from sandboxes.installing import install


@pytest.fixture
async def run(tmp_path):
    async with RolloutWriter(tmp_path / "run") as writer:
        for n in range(3):
            await writer.write(renamed(rollout(), f"r-{n}"))
    return tmp_path / "run"


async def test_json_lines(run, tmp_path, capsys):
    assert main([str(run), str(tmp_path / "out"), "--to", "jsonl"]) == 0
    counts = {path.stem: len(path.read_text().splitlines()) for path in (tmp_path / "out").iterdir()}
    assert counts == {"rollouts": 3, "turns": 6, "rows": 3}


async def test_json_lines_of_a_run_that_goes_on_have_the_same_rollouts(run, tmp_path, monkeypatch):
    read = iter([*[list(exporting.read_rollouts(run))[:2]] * 2, *[list(exporting.read_rollouts(run))] * 9])
    monkeypatch.setattr(exporting, "read_rollouts", lambda _: next(read))
    assert main([str(run), str(tmp_path / "out"), "--to", "jsonl"]) == 0
    counts = {path.stem: len(path.read_text().splitlines()) for path in (tmp_path / "out").iterdir()}
    assert counts == {"rollouts": 2, "turns": 4, "rows": 2}


async def test_parquet(run, tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main([str(run), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'out'}: rollouts.parquet, rows.parquet, turns.parquet\n"
    assert parquet.read_table(tmp_path / "out/turns.parquet").num_rows == 6


@pytest.mark.slow
async def test_a_dataset(run, tmp_path):
    datasets = pytest.importorskip("datasets")
    assert main([str(run), str(tmp_path / "out"), "--to", "dataset"]) == 0
    assert datasets.load_from_disk(str(tmp_path / "out/rollouts"))["id"][:] == ["r-0", "r-1", "r-2"]


async def test_triplets(run, tmp_path, capsys):
    assert main([str(run), str(tmp_path / "deep/out.jsonl"), "--to", "triplets"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "deep/out.jsonl").read_text().splitlines()]
    assert [line["turn"] for line in lines] == [0, 1] * 3
    assert "6 triplets" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["jsonl", "triplets"])
async def test_a_full_disk_leaves_no_part_behind(run, tmp_path, monkeypatch, capsys, form):
    def full(row):
        assert not (tmp_path / "out").exists(), "it is there when it is whole"
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(exporting, "plain", full)
    assert main([str(run), str(tmp_path / "out"), "--to", form]) == 2
    assert "the disk is full" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [run]


@pytest.mark.parametrize("form", ["jsonl", "triplets"])
async def test_a_killed_export_is_not_in_the_way_of_the_next(run, tmp_path, monkeypatch, form):
    def kill(row):
        os.kill(os.getpid(), signal.SIGKILL)

    place = [str(run), str(tmp_path / "out"), "--to", form]
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "plain", kill)
        killed = multiprocessing.get_context("fork").Process(target=main, args=(place,))
        killed.start()
        killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert not (tmp_path / "out").exists()
    assert main(place) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"run", "out"}


async def test_the_standard_output_is_refused(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main([str(run), "-", "--to", "jsonl"])
    assert "OUT: - is no place: nothing is written to the standard output; name a file" in capsys.readouterr().err
    assert not (tmp_path / "-").exists()


async def test_what_can_not_be_is_said(run, tmp_path, capsys):
    spans = tmp_path / "spans.jsonl"
    spans.write_text("{")
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "rollouts.jsonl").write_bytes(b"\xff{\n")
    for arguments, said in (
        ([str(tmp_path / "none"), "x"], "holds no rollouts"),
        ([str(run), str(run)], "is there already"),
        ([str(torn), str(tmp_path / "x"), "--to", "jsonl"], "torn holds no rollout that can be read"),
        ([str(spans), str(tmp_path / "x")], "takes a run's directory"),
        ([str(run), str(tmp_path / "rows.jsonl")], "rows.jsonl reads like one file; name a folder"),
        ([str(spans), str(tmp_path / "x"), "--to", "triplets"], "line 1 holds no spans"),
    ):
        assert main(arguments) == 2
        assert said in capsys.readouterr().err


async def test_a_package_that_is_missing_is_named(run, tmp_path, monkeypatch, capsys):
    def missing(*_):
        raise ModuleNotFoundError("no", name="pyarrow")

    monkeypatch.setattr(exporting, "_export", missing)
    assert main([str(run), str(tmp_path / "out")]) == 2
    assert f"needs pyarrow: {install('datasets')}" in capsys.readouterr().err
