"""What the page reads of the journal."""

import pytest

from envs.running.database import RunDirectoryError
from envs.runs import journal


def test_the_standing_of_a_run(run_dir):
    found = journal.standing(run_dir)
    assert found.groups == {"delivered": 2, "equal": 1, "working": 1}
    assert (found.members, found.group_size, found.outbox) == (14, 4, {})


def test_groups_are_read_newest_first_by_state_and_by_task(run_dir):
    assert [group.number for group in journal.groups(run_dir)] == [3, 2, 1, 0]
    assert [group.number for group in journal.groups(run_dir, state="delivered", task="add-numbers")] == [2, 0]
    assert journal.groups(run_dir, page=2) == []
    assert journal.group(run_dir, 1).rewards == [0.0, 0.0, 0.0, 0.0]
    assert journal.group(run_dir, 99) is None


def test_a_directory_without_a_journal_has_no_groups(tmp_path):
    assert journal.standing(tmp_path) is None
    assert journal.groups(tmp_path) == []


def test_a_journal_that_can_not_be_read_is_named(tmp_path):
    (tmp_path / "state.db").write_bytes(b"no database" * 100)
    with pytest.raises(RunDirectoryError, match="can't be read"):
        journal.groups(tmp_path)
