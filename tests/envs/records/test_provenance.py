"""`run.json` says how each start of a run went."""

import json
from functools import partial

import orjson
import pytest
from huggingface_hub import try_to_load_from_cache

from envs.records import provenance
from envs.records.provenance import (
    add_start,
    commit,
    digest_of_model,
    digest_of_tokenizer,
    machine,
    read_starts,
    revision_of_model,
    versions,
)
from sandboxes import installing

START = {"command": "serve", "options": {"temperature": 1.0}, "arguments": ["python"], "versions": versions()}


def test_each_start_stands_behind_the_ones_before(tmp_path):
    for n in range(3):
        add_start(tmp_path, "id", "sums", {**START, "seed": n})
    told = orjson.loads((tmp_path / "run.json").read_bytes())
    assert (told["id"], told["environment"], [start["seed"] for start in told["starts"]]) == ("id", "sums", [0, 1, 2])
    assert told["starts"][0]["arguments"]
    assert told["starts"][0]["versions"]["python"]


def test_the_first_and_the_last_starts_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "MAX_STARTS", 4)
    for n in range(9):
        add_start(tmp_path, "id", "sums", {"seed": n})
    assert [start["seed"] for start in read_starts(tmp_path / "run.json")] == [0, 6, 7, 8]


def test_an_evaluation_in_the_directory_of_a_run_leaves_its_id(tmp_path):
    add_start(tmp_path, "id", "sums", {"seed": 0})
    add_start(tmp_path, None, "sums", {"seed": 1})
    assert orjson.loads((tmp_path / "run.json").read_bytes())["id"] == "id"


@pytest.mark.parametrize("text", ['{"starts": [{"seed": 1},]}', "[]", '{"starts": 1}', '{"starts": [{"options": 3}]}'])
def test_a_file_without_readable_starts_is_kept_beside_the_new_one(text, tmp_path, caplog):
    (tmp_path / "run.json").write_text(text)
    add_start(tmp_path, "id", "sums", {"seed": 1})
    assert read_starts(tmp_path / "run.json") == [{"seed": 1}]
    (kept,) = tmp_path.glob("run.damaged-*.json")
    assert kept.read_text() == text
    assert f"it is kept as {kept.name}" in caplog.text


def test_a_checkout_and_a_machine_have_a_name():
    found = commit()
    assert found is not None
    assert len(found.removesuffix("+changes")) == 40
    assert machine()["cpus"] >= 1
    assert {"python", "atropos-agent", "transformers"} <= versions().keys()


def test_a_package_outside_of_a_checkout_has_the_commit_that_pip_noted(monkeypatch):
    def fail(*_):
        raise FileNotFoundError("git")

    class Installed:
        def read_text(self, name):
            return json.dumps({"url": "u", "vcs_info": {"commit_id": "abc"}}) if name == "direct_url.json" else None

    monkeypatch.setattr(provenance, "_git", fail)
    assert commit() is None
    monkeypatch.setattr(installing, "distribution", lambda name: Installed())
    assert commit() == "abc"


def test_a_models_digest_is_that_of_its_small_files_and_of_the_sizes_of_all(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    before = digest_of_model(str(tmp_path))
    assert before == digest_of_model(str(tmp_path))
    (tmp_path / "config.json").write_text("[]")
    assert digest_of_model(str(tmp_path)) != before
    assert digest_of_model("hub/name") is None
    assert digest_of_model(None) is None
    assert digest_of_model(f"/{'no' * 200}") is None, "an inference server's own folder, which can't be looked at here"


def test_a_tokenizers_digest_changes_with_what_it_does(smollm2_tokenizer):
    before = digest_of_tokenizer(smollm2_tokenizer)
    assert before == digest_of_tokenizer(smollm2_tokenizer)

    class Other:
        def get_vocab(self):
            return {"a": 0}

    assert digest_of_tokenizer(Other()) != before


def test_a_model_of_the_hub_has_the_revision_that_is_kept_here(tmp_path, monkeypatch):
    kept = tmp_path / "models--some--model"
    (kept / "snapshots/abc123").mkdir(parents=True)
    (kept / "snapshots/abc123/config.json").write_text("{}")
    (kept / "refs").mkdir()
    (kept / "refs/main").write_text("abc123")
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", partial(try_to_load_from_cache, cache_dir=tmp_path))
    assert revision_of_model("some/model") == "abc123"
    for name in ("some/other", str(tmp_path), "no such name/of/all", f"/{'no' * 200}", "", None):
        assert revision_of_model(name) is None
