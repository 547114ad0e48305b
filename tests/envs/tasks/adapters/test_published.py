"""Published sets are downloaded in one revision, and their origin is noted."""

import json
import subprocess
from dataclasses import replace

import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from envs.tasks.adapters import published
from envs.tasks.adapters.published import download, write_origin
from envs.tasks.adapters.sets import SETS
from envs.types import BadTask


def test_a_set_on_the_hub_is_asked_for_in_its_revision(tmp_path, monkeypatch):
    asked = []

    def snapshot(place, **options):
        asked.append((place, options))
        return str(tmp_path)

    monkeypatch.setattr(published, "unavailable_reason", lambda: None)
    monkeypatch.setattr(published, "snapshot_download", snapshot)
    assert download(SETS["swe-gym"], tmp_path) == tmp_path
    ((place, options),) = asked
    assert (place, options["revision"]) == ("SWE-Gym/SWE-Gym", SETS["swe-gym"].revision)


def test_a_hub_without_the_set_is_named_with_the_remedy(tmp_path, monkeypatch):
    def offline(place, **options):
        raise LocalEntryNotFoundError("Got: ConnectError: Name or service not known\nmore")

    monkeypatch.setattr(published, "unavailable_reason", lambda: None)
    monkeypatch.setattr(published, "snapshot_download", offline)
    with pytest.raises(BadTask, match=r"SWE-Gym/SWE-Gym can't be downloaded .*: Got: ConnectError.* with --from$"):
        download(SETS["swe-gym"], tmp_path)


def test_a_hub_that_can_not_be_reached_is_named_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "unavailable_reason", lambda: "the hub can't be reached: no route")
    with pytest.raises(BadTask, match=r"SWE-Gym/SWE-Gym can't be downloaded .*: the hub .* no route; .* with --from$"):
        download(SETS["swe-gym"], tmp_path)


@pytest.fixture
def repository(tmp_path):
    """A repository of tasks, and its first commit of two."""
    where = tmp_path / "repository"

    def git(*words):
        given = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        done = subprocess.run(["git", "-C", where, *given, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    where.mkdir()
    git("init", "-q")
    (where / "instruction.md").write_text("first")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    first = git("rev-parse", "HEAD")
    (where / "instruction.md").write_text("second")
    git("commit", "-q", "-a", "-m", "second")
    return replace(SETS["terminal-bench-2"], place=where.as_uri(), revision=first)


def test_a_repository_is_taken_at_its_commit_and_kept(repository, tmp_path):
    folder = download(repository, tmp_path / "cache")
    assert (folder / "instruction.md").read_text() == "first"
    (tmp_path / "repository").rename(tmp_path / "gone")
    assert download(repository, tmp_path / "cache") == folder


def test_an_interrupted_checkout_is_begun_again(repository, tmp_path):
    (tmp_path / "cache" / repository.revision / ".git").mkdir(parents=True)
    assert (download(repository, tmp_path / "cache") / "instruction.md").read_text() == "first"


def test_a_repository_that_can_not_be_reached_is_named_with_the_remedy(repository, tmp_path):
    with pytest.raises(BadTask, match=r"nowhere can't be downloaded: .* with --from$"):
        download(replace(repository, place="file:///nowhere"), tmp_path)


def test_git_is_asked_for_where_it_is_missing(repository, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadTask, match=r"needs git; install it"):
        download(repository, tmp_path)


def test_a_folder_holds_one_revision_or_one_copy(tmp_path):
    rows = tmp_path / "rows.parquet"
    rows.write_bytes(b"1")
    write_origin(tmp_path / "hub", "swe-gym", None)
    write_origin(tmp_path / "hub", "swe-gym", None)
    write_origin(tmp_path / "copy", "swe-gym", rows)
    assert json.loads((tmp_path / "hub/source.json").read_text())["revision"] == SETS["swe-gym"].revision
    rows.write_bytes(b"2")
    for out, name, given in (("copy", "swe-gym", rows), ("hub", "swe-gym", rows), ("hub", "swe-smith", None)):
        with pytest.raises(BadTask, match=r"holds other tasks \(.*swe-gym.*\); give another --out"):
            write_origin(tmp_path / out, name, given)


def test_a_copy_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadTask, match=r"rows\.parquet is neither a file nor a folder"):
        write_origin(tmp_path / "out", "swe-gym", tmp_path / "rows.parquet")
