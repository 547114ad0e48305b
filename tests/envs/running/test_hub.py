"""A run as a dataset for the hub."""

import json
from dataclasses import replace

import httpx
import orjson
import pytest
import yaml
from samples import renamed, rollout

from envs.checking.manifest import Attack, CheckResult, write_manifest
from envs.records.atif import RolloutWriter
from envs.records.provenance import FILE_NAME
from envs.running import exporting
from envs.running.exporting import main
from envs.running.hub import push

pytest.importorskip("pyarrow", reason="the extra datasets is not installed")


@pytest.fixture
async def run(tmp_path):
    """A run of three rollouts, whose tasks were checked."""
    async with RolloutWriter(tmp_path / "run") as writer:
        for n in range(3):
            one = renamed(rollout(), f"r-{n}")
            conditions = replace(one.result.conditions, model=str(tmp_path / "models/small"))
            await writer.write(replace(one, result=replace(one.result, conditions=conditions)))
    attack = Attack("built-in", "exit 0", 1.0, True, patch="the secret patch")
    checked = [
        CheckResult(f"t{n}", "d" * 64, "image", (1.0,), (0.0,), 1.0, record="41 and 42", attacks=(attack,))
        for n in (1, 2)
    ]
    write_manifest(tmp_path / "tasks/manifest.json", checked)
    start = {"command": "process", "options": {"tasks": str(tmp_path / "tasks")}, "at": "2026-01-02T03:04:05+00:00"}
    (tmp_path / "run" / FILE_NAME).write_bytes(orjson.dumps({"starts": [start]}))
    return tmp_path / "run"


async def test_the_folder_is_a_dataset_with_its_card(run, tmp_path, capsys):
    out = tmp_path / "out"
    assert main([str(run), str(out), "--to", "hub"]) == 0
    assert "rollouts, turns, rows, tasks" in capsys.readouterr().out
    _, head, words = (out / "README.md").read_text().split("---\n", 2)
    configs = {one["config_name"]: one["data_files"] for one in yaml.safe_load(head)["configs"]}
    assert configs["rows"] == "data/rows.parquet"
    assert "3 rollouts of 1 task" in words and "last started 2026-01-02" in words
    assert "models: small\n" in words
    assert str(tmp_path) not in words  # nothing of this machine


async def test_load_dataset_reads_it(run, tmp_path):
    datasets = pytest.importorskip("datasets")
    assert main([str(run), str(tmp_path / "out"), "--to", "hub"]) == 0

    def load(name):
        return datasets.load_dataset(str(tmp_path / "out"), name, split="train", cache_dir=str(tmp_path / "cache"))

    assert load("rollouts")["id"][:] == ["r-0", "r-1", "r-2"]
    assert load("tasks")["task_id"][:] == ["t1", "t2"]
    assert len(load("turns")) == 6


async def test_nothing_of_hidden_tests_is_in_it(run, tmp_path):
    import pyarrow.parquet as pq

    assert main([str(run), str(tmp_path / "out"), "--to", "hub"]) == 0
    said = json.dumps(pq.read_table(tmp_path / "out/data/tasks.parquet").to_pylist())
    assert "41 and 42" not in said and "the secret patch" not in said


async def test_a_run_without_a_manifest_has_no_table_of_tasks(run, tmp_path, capsys):
    (tmp_path / "tasks/manifest.json").unlink()
    assert main([str(run), str(tmp_path / "out"), "--to", "hub"]) == 0
    assert "rollouts, turns, rows:" in capsys.readouterr().out


class FakeHub:
    def __init__(self):
        self.asked = []

    def create_repo(self, repo_id, **options):
        self.asked.append((repo_id, options))

    def upload_folder(self, **options):
        self.asked.append(options)


def test_what_is_pushed_is_private_until_somebody_decides_otherwise(tmp_path):
    hub = FakeHub()
    push(tmp_path, "me/rollouts", hub)
    (name, made), sent = hub.asked
    assert (name, made["private"], made["repo_type"]) == ("me/rollouts", True, "dataset")
    assert sent == {"repo_id": "me/rollouts", "repo_type": "dataset", "folder_path": str(tmp_path)}


class Unreachable:
    def create_repo(self, repo_id, **options):
        raise httpx.ConnectError("no route")


async def test_what_is_not_uploaded_is_a_sentence(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(exporting, "_HUB", lambda: Unreachable)
    assert main([str(run), str(tmp_path / "out"), "--hub", "me/rollouts"]) == 2
    said = capsys.readouterr().err
    assert "is written, but not uploaded: --hub me/rollouts: no route" in said
    assert f"hf upload me/rollouts {tmp_path}/out --repo-type dataset" in said
    assert (tmp_path / "out/README.md").exists()
