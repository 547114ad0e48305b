"""Control groups of either version, as folders of the same shape."""

import os
import subprocess
from pathlib import Path

import pytest
from waiting import in_time

from sandboxes.docker.crun import cgroups
from sandboxes.docker.crun.cgroups import TREE, Cgroup, is_unified, set_weight


def new_machine(tree, files: dict[str, str]) -> Cgroup:
    """A machine with version 2 alone."""
    folder = tree / "ours" / "box"
    folder.mkdir(parents=True)
    (tree / "cgroup.controllers").write_text("memory pids\n")
    for name, text in files.items():
        (folder / name).write_text(text)
    return Cgroup("ours/box", unified=True, tree=tree)


def old_machine(tree, files: dict[str, str]) -> Cgroup:
    for path, text in files.items():
        file = tree / path.partition("/")[0] / "ours" / "box" / path.partition("/")[2]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tree / "cpuacct").symlink_to("memory")
    return Cgroup("ours/box", unified=False, tree=tree)


NEW = {"memory.current": "98", "memory.max": "100", "memory.stat": "active_file 0\ninactive_file 0\n"}
OLD = {
    "memory/memory.usage_in_bytes": "98",
    "memory/memory.limit_in_bytes": "100",
    "memory/memory.stat": "total_active_file 0\n",
}
PIDS = {"pids.current": "3", "pids.max": "3"}


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ({}, "memory"),
        ({"memory.current": "50"}, "processes"),
        ({"memory.stat": "active_file 30\ninactive_file 0\n"}, "processes"),
        ({"memory.max": "max", "pids.max": "max"}, None),
        ({"memory.current": "50", "pids.current": "2"}, None),
    ],
)
def test_the_limit_that_is_reached_is_told(tmp_path, changed, limit):
    cgroup = new_machine(tmp_path, NEW | PIDS | changed)
    assert is_unified(tmp_path)
    assert cgroup.reached_limit() == limit


def test_version_1_is_read_by_its_names(tmp_path):
    cgroup = old_machine(tmp_path, OLD | {f"pids/{name}": text for name, text in PIDS.items()})
    assert not is_unified(tmp_path)
    assert cgroup.reached_limit() == "memory"
    (tmp_path / "memory/ours/box/memory.usage_in_bytes").write_text("1")
    assert cgroup.reached_limit() == "processes"
    assert {folder.parent.parent.name for folder in cgroup.folders()} == {"memory", "pids"}, "a link is no other one"


@pytest.mark.parametrize(("killed", "refused", "was"), [(0, 0, False), (1, 0, True), (0, 7, True)])
def test_that_something_was_ended_at_a_limit_is_known_for_ever(tmp_path, killed, refused, was):
    old = {
        "memory/memory.oom_control": f"oom_kill_disable 0\noom_kill {killed}\n",
        "pids/pids.events": f"max {refused}\n",
    }
    assert old_machine(tmp_path / "old", old).has_hit_limit() is was
    new = {"memory.events": f"low 0\nmax 99\noom_kill {killed}\n", "pids.events": f"max {refused}\n"}
    assert new_machine(tmp_path / "new", new).has_hit_limit() is was
    assert Cgroup("no/such", unified=True, tree=tmp_path).has_hit_limit(), "nobody knows"


def test_one_that_is_gone_is_at_no_limit(tmp_path):
    cgroup = Cgroup("no/such", unified=True, tree=tmp_path)
    assert (cgroup.reached_limit(), cgroup.processes(), cgroup.remove()) == (None, [], True)
    cgroup.thaw()
    cgroup.kill()


def test_freezing_waits_until_all_stand_still(tmp_path, monkeypatch):
    cgroup = new_machine(tmp_path, {"cgroup.events": "populated 1\nfrozen 1\n", "cgroup.freeze": "0"})
    assert cgroup.freeze()
    assert (tmp_path / "ours/box/cgroup.freeze").read_text() == "1"
    cgroup.thaw()
    assert (tmp_path / "ours/box/cgroup.freeze").read_text() == "0"
    (tmp_path / "ours/box/cgroup.events").write_text("frozen 0\n")
    monkeypatch.setattr(cgroups, "_FREEZE_S", 0.01)
    assert not cgroup.freeze()
    assert (tmp_path / "ours/box/cgroup.freeze").read_text() == "1", "those that can be stay stopped"


@pytest.mark.skipif(
    os.geteuid() != 0 or not (is_unified() or (TREE / "freezer").is_dir()), reason="needs root and control groups"
)
def test_a_frozen_process_ends_and_its_group_goes():
    cgroup = Cgroup(f"atropos-agent/test-{os.getpid()}", unified=is_unified())
    folder = (TREE if cgroup.unified else TREE / "freezer") / cgroup.path
    folder.mkdir(parents=True)
    process = subprocess.Popen(["sleep", "600"])
    (folder / "cgroup.procs").write_text(str(process.pid))
    assert cgroup.freeze()
    assert cgroup.processes() == [process.pid]
    assert not cgroup.remove(), "it has a process"
    cgroup.kill()
    process.wait(120)
    assert in_time(cgroup.remove)
    assert not folder.exists()


def test_counts_begin_again_where_the_kernel_lets_them(tmp_path):
    counted = ("memory/memory.max_usage_in_bytes", "memory/memory.failcnt")
    old_machine(tmp_path / "old", dict.fromkeys(counted, "7")).reset_counts()
    assert [(tmp_path / "old" / "memory/ours/box" / Path(one).name).read_text() for one in counted] == ["0", "0"]
    machine = new_machine(tmp_path / "new", {"memory.peak": "7"})
    machine.reset_counts()
    assert (tmp_path / "new/ours/box/memory.peak").read_text() == "7"


@pytest.mark.parametrize(
    ("unified", "file", "weights"),
    [(False, "cpu/ours/cpu.shares", (1024, 3072)), (True, "ours/cpu.weight", (100, 300))],
)
def test_sandboxes_weigh_as_much_as_so_many_processes(tmp_path, unified, file, weights):
    folder = (tmp_path / file).parent
    folder.mkdir(parents=True)
    for count, weight in zip((0, 3), weights, strict=True):
        for number in range(count):
            (folder / f"box-{number}").mkdir()
        set_weight("ours", unified, tmp_path)
        assert (tmp_path / file).read_text() == str(weight)
    set_weight("nowhere", unified, tmp_path)
