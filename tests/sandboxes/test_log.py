"""The log of a command: its own records, and of libraries those that warn."""

import io
import logging

import pytest

from sandboxes import log
from sandboxes.log import OwnRecords


def record(file, level=logging.INFO, name="somebody"):
    return logging.LogRecord(name, level, file, 1, "said", (), None)


@pytest.mark.parametrize("client", ["httpx", "httpx2", "openai._base_client", "what_comes_next"])
def test_a_librarys_line_about_each_request_is_left_out_and_its_warning_is_not(client):
    file = f"/usr/lib/python3/site-packages/{client.partition('.')[0]}/client.py"
    assert not OwnRecords().filter(record(file, name=client))
    assert OwnRecords().filter(record(file, logging.WARNING, client))


def test_the_standard_librarys_is_left_out_as_well():
    assert not OwnRecords().filter(record(logging.__file__, logging.DEBUG, "asyncio"))


def test_our_records_and_those_of_the_users_module_pass():
    assert OwnRecords().filter(record(log.__file__))
    assert OwnRecords().filter(record("/home/me/my_environment.py"))
    assert OwnRecords(["mine"]).filter(record("/venv/site-packages/mine/env.py", name="mine.env"))


def test_libraries_that_miss_pytorch_do_not_say_so(monkeypatch):
    monkeypatch.delenv("TRANSFORMERS_NO_ADVISORY_WARNINGS", raising=False)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    log.set_up_log(stream=io.StringIO())
    assert log.os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] == "1"
