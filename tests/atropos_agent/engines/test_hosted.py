"""Hosted models: what providers say beside a reply is followed, and counted."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from atropos_agent.engines.hosted import LONGEST_S, Usage, pause_in, pause_s, refused_option

NOW = datetime(2026, 11, 26, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after-ms": "nan", "retry-after": "2"}, 2.0),
        ({"retry-after": "nan"}, None),
        ({"Retry-After": "Thu, 26 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m2.5s"}, 62.5),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "9s"}, None),
        ({"x-ratelimit-reset-tokens": "120ms"}, 0.12),
        ({"x-ratelimit-reset-tokens": "3", "x-ratelimit-reset-requests": "8"}, 8.0),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2026-11-26T12:00:20Z",
                "anthropic-ratelimit-requests-remaining": "4",
                "anthropic-ratelimit-requests-reset": "2026-11-26T12:00:50Z",
            },
            20.0,
        ),
        ({"Retry-After": "86400"}, LONGEST_S),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Thu, 26 Nov 99999999999 12:00:30 GMT"}, None),
        ({"Retry-After": "-3"}, 0.0),
        ({}, None),
    ],
)
def test_the_pause_of_a_providers_headers(headers, seconds):
    assert pause_s(headers, NOW) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value",
            "temperature",
        ),
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", "top_p"),
        ("`temperature` is deprecated for this model.", "temperature"),
        ("Unsupported parameter: 'stop' is not supported with this model.", "stop"),
        ("stop_sequences: Extra inputs are not permitted", "stop"),
        ("Encrypted content is not supported with this model.", "include"),
        ("temperature: range: 0..1", None),
        ("this model is not supported", None),
        ("top_k: Extra inputs are not permitted", None),
    ],
)
def test_an_option_that_a_model_does_not_take_is_named_by_its_refusal(text, name):
    options = {"temperature": 0.0, "top_p": 0.9, "stop": ["x"], "include": ["y"], "max_tokens": 5}
    assert refused_option(text, options) == name


def test_usage_and_its_price_are_added_up():
    used = SimpleNamespace(
        prompt_tokens=1000, completion_tokens=100, prompt_tokens_details=SimpleNamespace(cached_tokens=400)
    )
    usage = Usage()
    for _ in range(2):
        usage.add(used, [2.5, 10.0])
    assert str(usage) == "2 requests, 2,000 input (800 cached) and 200 output tokens, $0.01"
    usage.add(SimpleNamespace(prompt_tokens=1, completion_tokens=1, cost=1.5), [])
    assert usage.cost == pytest.approx(0.007 + 1.5), "a cost that the provider names counts"
    unknown = Usage()
    unknown.add(None, [])
    unknown.add(SimpleNamespace(prompt_tokens="many", completion_tokens=None), [2.5, 10.0])
    assert (unknown.requests, unknown.cost) == (2, None)
    assert str(unknown) == "2 requests, whose tokens the endpoint does not report"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Rate limit reached for m. Please try again in 1m30.5s. Visit", 90.5),
        ("Please try again in 6ms.", 0.006),
        ("No deployments available for selected model, Try again in 5 seconds. Passed model=m", 5.0),
        ("try again in 400 hours", LONGEST_S),
        ("try again in a while", None),
        ("No deployments available for selected model.", None),
    ],
)
def test_a_pause_may_stand_in_an_errors_text(text, seconds):
    assert pause_in(text) == (seconds if seconds is None else pytest.approx(seconds))
