"""What the check of tasks leaves behind, and what a run makes of it."""

import json
import logging
from dataclasses import replace
from functools import partial

import pytest

from envs.checking.manifest import Attack, CheckResult, add_results, read_manifest, usable, write_manifest
from envs.tasks.selection import keep_sound
from envs.types import BadTask, Task

GOOD = CheckResult("good", "d1", "image", (1.0, 1.0), (0.0, 0.0), 1.5, verifier_s=0.5, memory_mb=40.0, image_mb=209.0)
BAD = CheckResult("bad", "d2", "", (), (), 0.5, "no image")
FLAKY = CheckResult("flaky", "d3", "image", (1.0, 0.0), (0.0, 0.0), 1.0, "repeats disagree", flaky=True)
TASKS = [Task("good", "", digest="d1"), Task("bad", "", digest="d2"), Task("flaky", "", digest="d3")]


def test_a_manifest_can_be_read_back(tmp_path):
    path = tmp_path / "deep/manifest.json"
    write_manifest(path, [GOOD, BAD, FLAKY])
    assert read_manifest(path) == {"good": GOOD, "bad": BAD, "flaky": FLAKY}


def test_attacks_are_kept(tmp_path):
    attacks = (Attack("built-in", "exit 0", 1.0, True, "diff"), Attack("m", "attempt 1", None, problem="why"))
    write_manifest(tmp_path / "manifest.json", [replace(GOOD, attacks=attacks), BAD])
    read = read_manifest(tmp_path / "manifest.json")
    assert (read["good"].attacks, read["bad"].attacks) == (attacks, ())
    assert read["good"].accepts == [attacks[0]]


def test_two_checks_at_once_keep_each_others_results(tmp_path):
    path = tmp_path / "folder/manifest.json"
    earlier, changed = replace(GOOD, task_id="earlier"), replace(GOOD, seconds=9.0)
    write = partial(add_results, path, {"earlier": earlier, GOOD.task_id: GOOD})
    write({BAD.task_id: BAD})
    write({GOOD.task_id: changed})
    write({FLAKY.task_id: FLAKY})
    assert read_manifest(path) == {one.task_id: one for one in (earlier, changed, BAD, FLAKY)}
    path.write_text("torn {")
    add_results(path, {}, {BAD.task_id: BAD})
    assert read_manifest(path) == {BAD.task_id: BAD}


def test_fields_that_an_older_manifest_lacks_have_their_defaults(tmp_path):
    path = tmp_path / "manifest.json"
    write_manifest(path, [GOOD])
    old = json.loads(path.read_text())
    for name in ("notes", "attacks"):
        del old["tasks"]["good"][name]
    path.write_text(json.dumps(old))
    assert read_manifest(path) == {"good": GOOD}


def test_only_tasks_that_were_seen_to_be_sound_are_used(tmp_path, caplog):
    write_manifest(tmp_path / "manifest.json", [GOOD, BAD, FLAKY])
    with caplog.at_level(logging.WARNING):
        assert [task.id for task in keep_sound([*TASKS, Task("new", "")], tmp_path, None)] == ["good"]
    assert "3 of 4 tasks are left out" in caplog.text
    assert "2 failed its check, 1 have changed or are new since" in caplog.text


@pytest.mark.parametrize(("told", "usual", "watched"), [(2.5, 2.5, True), (0.0, None, False)])
def test_a_task_is_told_how_long_its_tests_took_and_whether_they_were_watched(told, usual, watched):
    (task,) = usable(TASKS[:1], {"good": replace(GOOD, verifier_s=told, watched=watched)}, "manifest.json")
    assert (task.hidden.usual_s, task.hidden.watched) == (usual, watched)


def test_a_task_that_has_changed_since_its_check_is_not_used():
    with pytest.raises(BadTask, match="run `tasks check` on the folder again"):
        usable([Task("good", "", digest="other")], {"good": GOOD}, "manifest.json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, "is no manifest") for text in ("", "{", "[]", '{"version": 5}', '{"version": 5, "tasks": {"a": {}}}')),
        ('{"version": 4, "tasks": {}}', "of version 4, not 5"),
    ],
)
def test_a_file_that_is_no_manifest_of_this_version_is_refused(tmp_path, text, said):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(BadTask, match=f"{said}.*`tasks check --again`"):
        read_manifest(tmp_path / "manifest.json")
