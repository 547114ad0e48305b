"""Rows come from a dataset of the Hugging Face hub, or from a folder of one, as they come from a file."""

import json
import os
import re
import subprocess
import sys

import pytest

from envs.tasks.adapters import hub
from envs.tasks.adapters.dataset_rows import read_rows
from envs.tasks.adapters.hub import Dataset
from envs.tasks.adapters.python_functions import load
from envs.types import BadTask
from sandboxes.installing import install

datasets = pytest.importorskip("datasets")


def row(number):
    return {
        "task_id": f"HumanEval/{number}",
        "entry_point": "one",
        "prompt": "def one():\n",
        "canonical_solution": "    return 1\n",
        "test": "def check(candidate):\n    assert candidate() == 1\n",
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A downloaded dataset: one Parquet file for each of two splits."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for split, number in (("train", 1), ("test", 2)):
        datasets.Dataset.from_list([row(number)]).to_parquet(folder / f"{split}.parquet")
    return folder


def ids(path):
    return [read().values["task_id"] for _, read in read_rows(path)]


def test_the_test_split_is_taken_where_none_is_named(folder):
    assert ids(folder) == ["HumanEval/2"]


def test_a_split_is_named_behind_a_colon(folder):
    assert ids(folder.with_name("downloaded:train")) == ["HumanEval/1"]


def test_the_only_split_needs_no_name(folder):
    (folder / "test.parquet").unlink()
    assert ids(folder) == ["HumanEval/1"]


def test_several_splits_without_a_test_split_are_listed(folder):
    (folder / "test.parquet").rename(folder / "dev.parquet")
    with pytest.raises(BadTask, match=r"has several splits: write .*:SPLIT with one of train, validation"):
        ids(folder)


def test_a_split_that_is_not_there_is_refused_with_those_that_are(folder):
    with pytest.raises(BadTask, match=r"no split 'lite': .* one of train, test"):
        ids(folder.with_name("downloaded:lite"))


def test_a_saved_dataset_is_read_with_or_without_splits(tmp_path):
    one = datasets.Dataset.from_list([row(3)])
    one.save_to_disk(tmp_path / "one")
    datasets.DatasetDict(lite=one, test=datasets.Dataset.from_list([row(4)])).save_to_disk(tmp_path / "more")
    assert ids(tmp_path / "one") == ["HumanEval/3"]
    assert ids(tmp_path / "more") == ["HumanEval/4"]
    assert ids(tmp_path / "more:lite") == ["HumanEval/3"]


def test_a_row_that_can_not_be_used_is_named_by_dataset_split_and_number(tmp_path):
    datasets.Dataset.from_list([row(1), row(2) | {"test": ""}]).save_to_disk(tmp_path / "saved")
    with pytest.raises(BadTask, match="saved:rows:2: test is missing or empty"):
        load(tmp_path / "saved", tmp_path / "out")


def test_a_path_comes_before_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner/name").mkdir(parents=True)
    assert Dataset.parse("owner/name") == Dataset("owner/name", None)
    assert Dataset.parse("owner/name:test") == Dataset("owner/name", "test")
    (tmp_path / "owner/rows").write_text("not a dataset")
    with pytest.raises(BadTask, match=r"rows:1 is not valid JSON: .*; give rows as \.jsonl, "):
        ids((tmp_path / "owner/rows").relative_to(tmp_path))
    with pytest.raises(BadTask, match=r"is not a file; a split goes after .* alone; give rows as"):
        list(read_rows(tmp_path / "owner/rows:test"))


def test_what_is_no_name_and_not_there_is_refused_without_asking_the_hub():
    for source in ("rows.jsonl", "some/rows.jsonl", "/no/such/file", "a/b/c"):
        assert Dataset.parse(source) is None


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(BadTask, match=rf"{re.escape(install('datasets'))}.*download its parquet file"):
        list(Dataset("owner/name", None).rows())


def test_a_name_that_can_not_be_fetched_ends_the_command_with_the_remedy(tmp_path):
    convert = ["convert", "swebench", "princeton-nlp/SWE-bench_Verified:test", "--out", str(tmp_path / "out")]
    ran = subprocess.run(
        [sys.executable, "-m", "envs.swe", "tasks", *convert],
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 2
    assert "princeton-nlp/SWE-bench_Verified can't be loaded: " in ran.stderr
    assert ran.stderr.strip().endswith("download its parquet file and give that file's path")


def test_a_name_is_not_looked_for_where_the_hub_can_not_be_reached(monkeypatch):
    monkeypatch.setattr(hub, "unavailable_reason", lambda: "the hub can't be reached: no route")
    with pytest.raises(BadTask, match="owner/name can't be loaded: the hub can't be reached: no route; download its"):
        list(Dataset("owner/name", None).rows())


def test_a_dataset_and_a_file_of_the_same_rows_make_the_same_tasks(folder, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(row(2)))
    (one,), (other,) = load(folder, tmp_path / "a"), load(tmp_path / "rows.jsonl", tmp_path / "b")
    assert one.digest == other.digest
