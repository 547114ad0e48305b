"""What the process that runs the tests hands on."""

import json
import marshal
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


def sample(writer, trusted=None):
    call = SimpleNamespace(path=[], unittest=False, root="/app")
    return reporter.Reporter(call, SimpleNamespace(paths=[]), writer, trusted or {})


def said(reader):
    return [json.loads(line) for line in os.read(reader, 1 << 16).splitlines()]


def test_what_tests_rely_on_is_compared_at_the_end(pipe, monkeypatch):
    one = sample(pipe[1])
    one.begin()
    one.end(0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    one.end(0)
    assert [message["tampered"] for message in said(pipe[0])] == [[], ["time.time"]]


def test_a_module_of_tests_is_imported_as_it_was_handed_over(pipe, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "sample_from_memory.py"
    path.write_text("raise AssertionError('from the file')")
    codes = [marshal.dumps(None), marshal.dumps(compile("value = 5", "x", "exec")), marshal.dumps("bad syntax")]
    with (tmp_path / "codes").open("wb+") as file:
        file.write(b"".join(codes))
        file.flush()
        lines = [json.dumps([str(path), "/other.py"]), *map(str, map(len, codes))]
        os.write(pipe[1], "".join(line + "\n" for line in lines).encode())
        modules = reporter.Modules(pipe[0], file.fileno())
        finder = reporter.Finder(modules, "the probe")
        module = SimpleNamespace(__spec__=finder.find_spec("sample_from_memory"))
        finder.exec_module(module)
        assert module.value == 5
        assert getattr(module, reporter.PROBE) == "the probe"
        assert finder.find_spec("json") is None
        with pytest.raises(SyntaxError, match="bad syntax"):
            modules.code("/other.py")
