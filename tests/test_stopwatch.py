"""The stopwatch of tests, on an idle machine and on a busy one."""

import re
import time
from pathlib import Path

import pytest
import stopwatch
from stopwatch import Stopwatch

IDLE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
BUSY = IDLE.replace("5000000", "5100000")


@pytest.mark.parametrize(("after", "counted"), [(IDLE, 0.1), (BUSY, 0.0)], ids=["idle", "busy"])
def test_seconds_in_which_a_process_waits_for_a_processor_do_not_count(monkeypatch, tmp_path, after, counted):
    monkeypatch.setattr(stopwatch, "PRESSURE", tmp_path / "cpu")
    (tmp_path / "cpu").write_text(IDLE)
    began, watch = time.monotonic(), Stopwatch()
    time.sleep(0.1)
    (tmp_path / "cpu").write_text(after)
    assert counted <= watch.seconds <= time.monotonic() - began - 0.1 + counted


def test_where_the_kernel_does_not_count_them_all_seconds_do(monkeypatch, tmp_path):
    monkeypatch.setattr(stopwatch, "PRESSURE", tmp_path / "nothing")
    watch = Stopwatch()
    time.sleep(0.1)
    assert watch.seconds >= 0.1


def test_no_test_measures_an_upper_bound_in_another_way():
    another = re.compile(r"assert .*(duration_s|monotonic\(\) - \w+) < ")
    files = Path(__file__).parent.rglob("*.py")
    assert not [f"{file.name}: {found[0]}" for file in files for found in another.finditer(file.read_text())]
