"""The log of a command: its own records, and of libraries those that warn."""

import io
import logging

import pytest

from sandboxes import log
from sandboxes.log import LogOnceFilter, OwnRecordsFilter


def record(file, level=logging.INFO, name="somebody"):
    return logging.LogRecord(name, level, file, 1, "said", (), None)


@pytest.mark.parametrize("client", ["httpx", "httpx2", "openai._base_client", "what_comes_next"])
def test_a_librarys_line_about_each_request_is_left_out_and_its_warning_is_not(client):
    file = f"/usr/lib/python3/site-packages/{client.partition('.')[0]}/client.py"
    assert not OwnRecordsFilter().filter(record(file, name=client))
    assert OwnRecordsFilter().filter(record(file, logging.WARNING, client))


def test_the_standard_librarys_is_left_out_as_well():
    assert not OwnRecordsFilter().filter(record(logging.__file__, logging.DEBUG, "asyncio"))


def test_our_records_and_those_of_the_users_module_pass():
    assert OwnRecordsFilter().filter(record(log.__file__))
    assert OwnRecordsFilter().filter(record("/home/me/my_environment.py"))
    assert OwnRecordsFilter(["mine"]).filter(record("/venv/site-packages/mine/env.py", name="mine.env"))


def test_set_up_every_handler_leaves_them_out(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(logging, "root", logging.RootLogger(logging.WARNING))
    log.set_up_log("INFO", log.TIMED, stream=stream)
    logging.root.handle(record("/usr/lib/python3/site-packages/httpx2/client.py"))
    logging.root.handle(record("/home/me/my_environment.py", name="mine"))
    assert stream.getvalue().count("\n") == 1 and "INFO mine: said" in stream.getvalue()


def test_what_a_record_quotes_steers_no_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(logging, "root", logging.RootLogger(logging.WARNING))
    log.set_up_log("INFO", stream=stream)
    try:
        raise ValueError("a server said \x1b[31m\x9b2J")
    except ValueError:
        logging.root.warning("it answered %s", "503 \x1b]0;mine\x07 busy", exc_info=True)
    assert "it answered 503 ]0;mine busy\n" in stream.getvalue()
    assert not {"\x1b", "\x07", "\x9b"} & set(stream.getvalue())


def test_a_message_is_said_once_a_minute_and_one_with_a_traceback_each_time():
    once = LogOnceFilter()
    waiting, error = record("/home/me/a.py", logging.ERROR), record("/home/me/a.py", logging.ERROR)
    error.exc_info = (ValueError, ValueError(), None)
    assert [once.filter(waiting), once.filter(waiting)] == [True, False]
    assert once.filter(record("/home/me/a.py", name="another")), "another part of the program says the same"
    assert once.filter(error) and once.filter(error)
    waiting.created += LogOnceFilter.again_s
    assert once.filter(waiting)
