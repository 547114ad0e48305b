"""The index is filled while somebody looks, and not otherwise."""

import os
import shutil
import time

from waiting import in_time

from envs.running.database import lock_directory
from envs.runs.index import FILE_NAME, Index
from envs.runs.reader import QUIET_S, goes_on
from envs.viewer.filling import Filling


def test_nothing_is_indexed_before_somebody_looks(run_dir, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns(f"{FILE_NAME}*"))
    index = Index(copy)
    with Filling([index]) as filling:
        time.sleep(0.1)
        assert index.coverage().indexed == 0
        filling.record_visit()
        assert in_time(lambda: index.coverage().share == 1.0)


def test_a_run_that_ended_in_good_order_is_over_at_once(tmp_path):
    (tmp_path / "metrics.json").write_text("{}")
    with lock_directory(tmp_path):
        assert goes_on(tmp_path)
    assert not goes_on(tmp_path)
    with lock_directory(tmp_path):
        assert goes_on(tmp_path), "it was started again"
    later = time.time() + 1.0  # at once would be within the same tick of the kernel's clock
    os.utime(tmp_path / "metrics.json", (later, later))
    assert goes_on(tmp_path), "somebody writes after all"


def test_a_run_goes_on_while_its_files_are_written(run_dir, tmp_path):
    assert not goes_on(tmp_path)
    path = tmp_path / "metrics.json"
    path.touch()
    assert not goes_on(tmp_path), "a reader makes empty files"
    path.write_bytes(b"{}")
    assert goes_on(tmp_path)
    os.utime(path, (0, time.time() - 2 * QUIET_S))
    assert not goes_on(tmp_path)
