"""What a task's tests could not notice is said, by class."""

import json

from envs.judging.blind_spots import blind_spots
from envs.types import TESTS_UNSEEN, Hidden, Task, TestStatus, Verdict

RECORD = json.dumps([{"tests": {"a": [], "b": [["a.py", 1, 0, 0]]}, "odd": [], "unverified": ["a"]}])
SEEN = Verdict(1.0, "", {"a": TestStatus.PASSED}, evidence=[{"tests": {}}])
UNSEEN = Verdict(1.0, "", {}, {TESTS_UNSEEN: 1.0})
GOOD = {"test.sh": "python3 -m pytest /tests/test_a.py && echo 1 > /logs/verifier/reward.txt\n"}


def classes(tmp_path, files=GOOD, verdict=SEEN, record="[]", tags=(), **hidden):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    task = Task("one", "Do it.", Hidden(tmp_path, **hidden), tags=tags)
    return [line.partition(":")[0] for line in blind_spots(task, [verdict], record, verdict is SEEN)]


def test_tests_that_are_watched_and_compare_have_none(tmp_path):
    assert classes(tmp_path, record=RECORD.replace('["a"]', "[]")) == []


def test_tests_that_compare_with_nothing_are_counted(tmp_path):
    task = Task("one", "Do it.", Hidden(tmp_path))
    assert blind_spots(task, [SEEN], RECORD, True) == ("forced tests: 1 of 2 compare with nothing that has decoys",)
    assert blind_spots(task, [SEEN], "", True)[0].startswith("forced tests: repeats called")


def test_what_nobody_watches_is_said(tmp_path):
    assert classes(tmp_path, verdict=UNSEEN) == ["unwatched"]
    assert classes(tmp_path, verdict=UNSEEN, tags=("printed-results",)) == ["printed results"]
