"""Requests in vLLM's shape are read or refused, never half understood."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from atropos_agent.cpu_engine.model import LoadedModel
from atropos_agent.cpu_engine.protocol import BadRequest, CompletionRequest, check_length, error_body


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [([1, 2], [[1, 2]]), ([[1], [2, 3]], [[1], [2, 3]])],
)
def test_prompts_in_ids_stay_as_they_are(prompt: Any, ids: list[list[int]]) -> None:
    assert CompletionRequest(prompt=prompt).prompts(None) == ids


def test_prompts_in_words_are_encoded(tiny: LoadedModel) -> None:
    expected = tiny.tokenizer.encode("naïve")
    assert CompletionRequest(prompt=["naïve", "naïve"]).prompts(tiny.tokenizer) == [expected, expected]


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(BadRequest, match="non-empty"):
        CompletionRequest(prompt=[]).prompts(None)


def test_a_field_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValidationError, match="best_of"):
        CompletionRequest.model_validate({"prompt": "x", "best_of": 2})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_tokens": 0}, "at least 1"),
        ({"temperature": 0, "n": 2}, "greedy"),
        ({"stop": ["", "a"]}, "empty string"),
    ],
)
def test_sampling_that_makes_no_sense_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        CompletionRequest(prompt="x", **fields).sampling()


@pytest.mark.parametrize("seed", [2**63, -(2**63) - 1])
def test_a_seed_of_more_than_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(ValidationError, match="seed"):
        CompletionRequest(prompt="x", seed=seed)


def test_defaults_are_those_of_vllm() -> None:
    sampling = CompletionRequest(prompt="x", top_k=-1).sampling()
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens) == (1.0, 1.0, 0, 16)
    assert sampling.logprobs is None


def test_temperatures_near_zero_are_those_of_vllm() -> None:
    given = [CompletionRequest(prompt="x", temperature=value).sampling().temperature for value in (0, 1e-40, 0.02)]
    assert given == [0, 0.01, 0.02]


def test_echo_scores_the_prompt_as_far_as_logprobs_are_wanted() -> None:
    assert CompletionRequest(prompt="x", echo=True, logprobs=2).sampling().prompt_logprobs == 2
    assert CompletionRequest(prompt="x", logprobs=2).sampling().prompt_logprobs is None


def test_what_does_not_fit_or_is_no_token_is_refused() -> None:
    check_length([1, 2], 2, vocab_size=3, max_model_len=4)
    with pytest.raises(BadRequest, match="maximum context length is 4"):
        check_length([1, 2], 3, vocab_size=3, max_model_len=4)
    with pytest.raises(BadRequest, match="Token id 3 is out of vocabulary"):
        check_length([3], 1, vocab_size=3, max_model_len=4)


def test_an_error_has_vllms_shape() -> None:
    assert error_body("no", 404, "model")["error"] == {
        "message": "no",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }
