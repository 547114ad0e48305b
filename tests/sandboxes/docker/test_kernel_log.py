"""What is read out of the kernel's log, a record at a time."""

import os

import pytest

from sandboxes.docker.kernel_log import KernelLog

RECORD = b"3,4711,2114943617,-;Memory cgroup out of memory: Killed process %d (%s) total-vm:968kB, UID:60417\n"


class Records:
    """/dev/kmsg: an answer for each reading."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self.answers = list(answers)

    def read(self, fd: int, size: int) -> bytes:
        if not self.answers:
            raise BlockingIOError
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.fixture
def log(tmp_path, monkeypatch):
    kmsg, opened = tmp_path / "kmsg", os.open
    kmsg.touch()
    monkeypatch.setattr(os, "open", lambda path, *flags: opened(kmsg if path == "/dev/kmsg" else path, *flags))
    found = KernelLog()
    yield found
    found.close()


@pytest.mark.parametrize(
    ("answers", "taken"),
    [
        ((RECORD % (77, b".atropos-execut"),), True),
        ((BrokenPipeError(), RECORD % (7, b".atropos-execut"), RECORD % (77, b".atropos-execut")), True),
        ((RECORD % (77, b"head"),), False),
        ((RECORD % (770, b".atropos-execut"),), False),
        ((b"6,1,1,-;said: Memory cgroup out of memory: Killed process 77 (.atropos-execut)\n",), False),
        ((), False),
    ],
)
def test_an_executor_is_told_by_its_id(log, monkeypatch, answers, taken):
    monkeypatch.setattr(os, "read", Records(*answers).read)
    assert log.has_killed(77) is taken
    assert log.has_killed(77) is taken, "what was read once is known"


def test_a_log_that_cannot_be_read_tells_nothing(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "open", refuse)
    assert KernelLog().has_killed(77) is False


KILL = (
    b"6,4712,2114943618,-;oom-kill:constraint=%s,nodemask=(null),cpuset=x,mems_allowed=0,%s,task_memcg=%s,"
    b"task=python3,pid=7,uid=0\n"
)


@pytest.mark.parametrize(
    ("limited", "killed", "starved"),
    [
        (b"global_oom", b"/mine/box-1", True),
        (b"global_oom", b"/outer/mine/box-1/inner", True),
        (b"oom_memcg=/outer", b"/outer/mine/box-1", True),
        (b"oom_memcg=/mine/box-1", b"/mine/box-1", False),
        (b"oom_memcg=/mine/box-1", b"/mine/box-1/inner", False),
        (b"global_oom", b"/mine/box-10", False),
    ],
)
def test_programs_killed_for_the_machines_memory_are_told_from_those_at_their_own_limit(
    log, monkeypatch, limited, killed, starved
):
    constraint = b"CONSTRAINT_NONE" if limited == b"global_oom" else b"CONSTRAINT_MEMCG"
    monkeypatch.setattr(os, "read", Records(KILL % (constraint, limited, killed)).read)
    assert log.was_killed_for_host("mine/box-1") is starved


def test_a_container_of_the_daemons_is_told_by_its_id(log, monkeypatch):
    kill = KILL % (b"CONSTRAINT_NONE", b"global_oom", b"/system.slice/docker-%s.scope" % (b"4f" * 32))
    monkeypatch.setattr(os, "read", Records(kill).read)
    assert log.was_killed_for_host("4f" * 32)
    assert not log.was_killed_for_host("4f" * 31)
