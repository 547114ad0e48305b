"""What an inference server's error means."""

from functools import reduce

import pytest

from atropos_agent.engines.errors import (
    ContextOverflow,
    EngineDown,
    OddAnswer,
    Refused,
    count_or_zero,
    parse_error,
    refusal,
)


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (400, "no such option", Refused),
        (400, "This model's maximum context length is 2048 tokens", ContextOverflow),
        (None, "input is too long", ContextOverflow),
        (None, "something", OddAnswer),
        (429, "queue too long", EngineDown),
        (500, "Internal Server Error", OddAnswer),
        (503, "busy", EngineDown),
    ],
)
def test_each_status_means_one_thing(status, text, expected):
    error = refusal("the server", status, text)
    assert type(error) is expected
    assert str(error).startswith("the server answered")


def test_the_beginning_of_an_error_is_read():
    assert type(refusal("the server", 400, "x" * 30_000 + " input is too long")) is Refused


@pytest.mark.parametrize("count", [10**30, -1, True, float("inf"), float("nan"), "7"])
def test_a_senseless_count_of_lost_tokens_is_none(count):
    assert count_or_zero(lambda body: count, None) == 0


def test_a_token_that_the_model_lacks_is_refused_with_the_remedy():
    error = refusal("the server", 400, "Token id 49160 is out of vocabulary")
    assert type(error) is Refused
    assert "set --env.tokenizer_name to the model's own" in str(error)


def test_a_server_that_says_itself_that_it_failed_is_broken():
    assert refusal("the server", 500, "x").broken
    assert not refusal("the server", None, "x").broken


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "busy", "code": 503}}, (503, "busy")),
        ({"object": "error", "message": "no such model", "code": "404"}, (404, "no such model")),
        ({"detail": "starting", "status_code": 503}, (503, "starting")),
        ({"error": "x"}, (None, "x")),
        ({"error": {"message": "x", "code": 7}}, (None, "x")),
        ({"error": {"message": "x", "code": "9" * 5000}}, (None, "x")),
        ({"error": {"message": "x", "code": reduce(lambda deep, _: [deep], range(2000), [])}}, (None, "x")),
        ({"choices": []}, None),
        ([], None),
        (None, None),
    ],
)
def test_an_error_is_found_in_the_body_whatever_http_says(body, said):
    assert parse_error(body) == said


@pytest.mark.parametrize("body", [{}, None, {"usage": []}, {"usage": {"completion_tokens": "x"}}])
def test_an_answer_that_is_too_odd_to_tell_its_tokens_has_none(body):
    assert count_or_zero(lambda body: int(body["usage"]["completion_tokens"]), body) == 0
