"""Secrets do not reach a log, a message or a page."""

import logging

import pytest

from envs.records.redaction import Redactor


@pytest.fixture
def redactor():
    return Redactor.of({"HF_TOKEN": "hf_abcdefgh", "HOME": "/home/somebody", "API_KEY": "none"}, ["sk-12345678", None])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token hf_abcdefgh!", "token ***!"),
        ("key=sk-12345678", "key=***"),
        ("http://me:password@host/", "http://***@host/"),
        ("/home/somebody", "/home/somebody"),
        ("none of it", "none of it"),
    ],
)
def test_secrets_are_replaced_and_nothing_else(redactor, text, shown):
    assert redactor.text(text) == shown


def test_a_secret_that_holds_another_is_replaced_whole():
    assert Redactor(["abcdefgh", "abcdefgh-and-more"]).text("abcdefgh-and-more") == "***"


def test_log_records_lose_secrets_also_from_their_arguments_and_tracebacks(redactor):
    try:
        raise ValueError("hf_abcdefgh")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    record = logging.LogRecord("x", logging.INFO, "", 0, "it is %s", ("hf_abcdefgh",), info)
    assert redactor.filter(record)
    assert record.getMessage() == "it is ***"
    assert "hf_abcdefgh" not in record.exc_text


def test_secrets_are_replaced_in_messages_tracebacks_and_addresses():
    redactor = Redactor.of({"HF_TOKEN": "hf_abcdefgh", "HOME": "/home/someone", "API_KEY": "short"}, ["sk-12345678"])
    try:
        raise ValueError("Bearer sk-12345678")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
        record = logging.LogRecord("x", 20, "", 0, "%s at https://me:pass@host/", ("hf_abcdefgh",), info)
    assert redactor.filter(record)
    assert record.getMessage() == "*** at https://***@host/"
    assert "sk-12345678" not in record.exc_text
    assert redactor.text("/home/someone short") == "/home/someone short"


def test_a_value_for_json_loses_its_secrets_whatever_letters_they_have_and_stays_a_value():
    redactor = Redactor(['pass"wo\\rd', "20240101"])
    told = {"command": ['--key=pass"wo\\rd'], "seed": 20240101, "about": {"20240101": None}}
    assert redactor.value(told) == {"command": ["--key=***"], "seed": 20240101, "about": {"***": None}}
