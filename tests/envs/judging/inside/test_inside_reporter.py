"""What the process that runs the tests hands on."""

import json
import os
import time
from types import SimpleNamespace

import pytest
import reporter


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def sample(writer, chosen=None, trusted=None):
    call = SimpleNamespace(sources={}, path=[], unittest=False, root="/app")
    return reporter.Reporter(call, writer, chosen, "test_canary", trusted or {})


def said(reader):
    return [json.loads(line) for line in os.read(reader, 1 << 16).splitlines()]


def test_what_tests_rely_on_is_compared_at_the_end(pipe, monkeypatch):
    one = sample(pipe[1])
    one.begin()
    one.end(0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    one.end(0)
    assert [message["tampered"] for message in said(pipe[0])] == [[], ["time.time"]]


def test_chosen_tests_are_known_by_file_and_name_whatever_their_case(pipe):
    one = sample(pipe[1], {"/app/tests/test_a.py": ["test_one", "T::test_two"]})
    assert one.is_chosen("tests/test_a.py::test_one[5]")
    assert one.is_chosen("tests/test_a.py::T::test_two")
    assert one.is_chosen("tests/test_b.py::test_canary")
    assert not one.is_chosen("tests/test_a.py::test_three")
    assert not one.is_chosen("tests/test_b.py::test_one")


def test_a_module_of_tests_is_imported_from_memory(pipe, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "sample_from_memory.py"
    path.write_text("raise AssertionError('from the file')")
    finder = reporter.Finder({str(path): b"value = 5\n"}, None, "test_canary", False)
    spec = finder.find_spec("sample_from_memory")
    module = SimpleNamespace(__spec__=spec)
    finder.exec_module(module)
    assert module.value == 5
    assert finder.find_spec("json") is None
