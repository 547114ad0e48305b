"""What is heard of a process of judged code."""

import json
import os

import processes
import pytest


def listened(*lines, status=3):
    """What is heard of a child that writes lines and ends."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"\n".join(lines) + b"\n")
        os._exit(status)
    os.close(writer)
    return processes.listen(reader, child, None, set())


def test_messages_are_heard_until_the_child_ends():
    messages, waited = listened(json.dumps({"kind": "test"}).encode(), json.dumps({"kind": "end"}).encode())
    assert messages == [{"kind": "test"}, {"kind": "end"}]
    assert processes.status_of(waited) == 3


def test_what_is_no_message_is_passed_over():
    assert listened(b"\xff\xfe", b"{", b"5", b'{"kind": "end"}')[0] == [{"kind": "end"}]


def test_a_signal_is_a_status_as_a_shell_has_it():
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), 9)
    assert processes.status_of(os.waitpid(child, 0)[1]) == 137


@pytest.mark.parametrize("path, inside", [("lib/a.py", True), ("../a.py", False), ("link/a.py", False), (None, False)])
def test_a_path_is_within_a_folder_by_where_it_leads(tmp_path, path, inside):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to("/etc")
    assert processes.within(path and str(tmp_path / "tree" / path), str(tmp_path / "tree")) is inside


def test_judged_code_runs_as_nobody_unless_the_task_says_otherwise(monkeypatch):
    monkeypatch.delenv("JUDGED_UID", raising=False)
    assert processes.judged_user() == 65534
    monkeypatch.setenv("JUDGED_UID", "1234")
    assert processes.judged_user() == 1234
