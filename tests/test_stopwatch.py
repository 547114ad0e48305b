"""The stopwatch of tests, on an idle machine and on a busy one."""

import os
import re
import time
from pathlib import Path

import pytest
from stopwatch import PROCESSORS, Stopwatch


@pytest.mark.parametrize(("begin", "end", "shared"), [(0.1, 0.1, 1), (4.0, 0.5, 4), (0.5, 4.0, 4)])
def test_seconds_are_shared_among_the_processes_of_a_processor(monkeypatch, begin, end, shared):
    monkeypatch.setattr(os, "getloadavg", lambda: (begin * PROCESSORS, 0.0, 0.0))
    began, watch = time.monotonic(), Stopwatch()
    time.sleep(0.1)
    monkeypatch.setattr(os, "getloadavg", lambda: (end * PROCESSORS, 0.0, 0.0))
    assert 0.1 / shared <= watch.seconds <= (time.monotonic() - began) / shared


def test_no_test_measures_an_upper_bound_in_another_way():
    another = re.compile(r"assert .*(duration_s|monotonic\(\) - \w+) < ")
    files = Path(__file__).parent.rglob("*.py")
    assert not [f"{file.name}: {found[0]}" for file in files for found in another.finditer(file.read_text())]
