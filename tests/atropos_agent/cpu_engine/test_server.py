"""`/v1/completions` answers as vLLM does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
import torch
from engine_client import complete, full_logprobs, serve
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast
from waiting import until

from atropos_agent.cpu_engine.model import LoadedModel
from atropos_agent.cpu_engine.sampling import SamplingParams
from atropos_agent.cpu_engine.scheduler import Done, Engine, EngineStopped, Ticket
from atropos_agent.cpu_engine.server import Server

PROMPT = [1, 4093, 198, 504, 2365, 6354]


async def test_the_body_has_the_fields_of_vllm(client: httpx.AsyncClient) -> None:
    request = {"model": "tiny", "prompt": PROMPT, "max_tokens": 3, "logprobs": 2, "return_token_ids": True}
    request |= {"seed": 1}  # without it some replies hold a control token, which the text leaves out
    body = (await client.post("/v1/completions", json=request)).json()
    assert body["object"] == "text_completion"
    assert body["model"] == "tiny"
    assert body["id"].startswith("cmpl-")
    assert body["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 3,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    (choice,) = body["choices"]
    assert choice.keys() == {
        *("index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs"),
        *("prompt_token_ids", "weight_version"),
    }
    assert choice["prompt_token_ids"] == PROMPT
    assert len(choice["token_ids"]) == 3
    assert choice["finish_reason"] == "length"
    assert choice["stop_reason"] is None
    logprobs = choice["logprobs"]
    assert logprobs.keys() == {"text_offset", "token_logprobs", "tokens", "top_logprobs"}
    assert {len(values) for values in logprobs.values()} == {3}
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert logprobs["text_offset"][0] == 0
    for token, logprob, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert top[token] == logprob
        assert 2 <= len(top) <= 3


async def test_ids_and_logprobs_are_null_unless_asked_for(client: httpx.AsyncClient) -> None:
    choice = (await client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 2})).json()["choices"][0]
    assert choice["token_ids"] is choice["prompt_token_ids"] is choice["logprobs"] is choice["prompt_logprobs"] is None


async def test_text_prompts_are_encoded(client: httpx.AsyncClient, tiny: LoadedModel) -> None:
    choice = await complete(client, "list the files", max_tokens=1)
    assert choice["prompt_token_ids"] == tiny.tokenizer.encode("list the files")


async def test_several_prompts_and_n_give_choices_in_order(client: httpx.AsyncClient) -> None:
    body = {"prompt": [PROMPT, PROMPT[:3]], "n": 2, "max_tokens": 4, "return_token_ids": True}
    choices = (await client.post("/v1/completions", json=body)).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert [len(choice["prompt_token_ids"]) for choice in choices] == [6, 6, 3, 3]
    assert choices[0]["token_ids"] != choices[1]["token_ids"]


async def test_the_end_of_turn_token_ends_a_reply_and_stays_in_the_ids(tiny: LoadedModel) -> None:
    async with serve(tiny) as client:
        greedy = await complete(client, PROMPT, temperature=0)
    end = greedy["token_ids"][2]
    shown = greedy["token_ids"].index(end)
    ended = LoadedModel(tiny.model, tiny.tokenizer, tiny.path, (end,))
    async with serve(ended) as client:
        choice = await complete(client, PROMPT, temperature=0)
        assert choice["finish_reason"] == "stop"
        assert choice["stop_reason"] is None
        assert choice["token_ids"] == greedy["token_ids"][: shown + 1]
        assert len(choice["logprobs"]["token_logprobs"]) == shown + 1
        assert choice["text"] == tiny.tokenizer.decode(choice["token_ids"][:-1])
        assert len((await complete(client, PROMPT, temperature=0, ignore_eos=True))["token_ids"]) == 12


async def test_a_stop_token_of_the_request_is_named_as_the_reason(client: httpx.AsyncClient) -> None:
    greedy = await complete(client, PROMPT, temperature=0)
    stop = greedy["token_ids"][1]
    choice = await complete(client, PROMPT, temperature=0, stop_token_ids=[stop])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    assert choice["token_ids"] == greedy["token_ids"][: greedy["token_ids"].index(stop) + 1]


@pytest.mark.parametrize("included", [False, True])
async def test_a_stop_string_cuts_the_text_but_not_the_ids(client: httpx.AsyncClient, included: bool) -> None:
    greedy = await complete(client, PROMPT, temperature=0)
    middle = len(greedy["text"]) // 2
    stop = greedy["text"][middle : middle + 3]
    choice = await complete(client, PROMPT, temperature=0, stop=["absent", stop], include_stop_str_in_output=included)
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    end = greedy["text"].index(stop)
    assert choice["text"] == greedy["text"][: end + (len(stop) if included else 0)]
    assert choice["token_ids"] == greedy["token_ids"][: len(choice["token_ids"])]
    assert len(choice["token_ids"]) < 12


class Dictated:
    """A model that samples given ids."""

    def __init__(self, model: Any, ids: Sequence[int]) -> None:
        self._model, self._ids = model, iter(ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        row = torch.full((len(hidden), self._model.vocab_size), float("-inf"))
        row[:, next(self._ids)] = 0.0
        return row


async def test_a_stop_string_is_found_where_a_byte_changes_the_text_before_it(tiny: LoadedModel) -> None:
    words = ["<unk>", "a", "\u2581a", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    ids = [words.index(word) for word in ("<0x41>", "<0xE6>", "\u2581a", "a", "a")]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    async with serve(replace(tiny, model=Dictated(tiny.model, ids), tokenizer=tokenizer, eos_ids=())) as client:
        choice = await complete(client, PROMPT, stop=["aa"])
    assert (choice["finish_reason"], choice["token_ids"], choice["text"]) == ("stop", ids[:4], "\ufffd\ufffd ")


async def test_a_prompt_is_scored_without_sampling(client: httpx.AsyncClient, reference: Any) -> None:
    ids = [(i * 7919) % 49000 for i in range(300)]
    choice = await complete(client, ids, max_tokens=0, echo=True, logprobs=1)
    rows = full_logprobs(reference, ids)
    expected = [float(rows[i, token]) for i, token in enumerate(ids[1:])]
    assert choice["logprobs"]["token_logprobs"][0] is None
    assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(expected, abs=1e-4)
    assert choice["token_ids"] == []


async def test_prompt_logprobs_name_each_token_with_its_rank(client: httpx.AsyncClient, reference: Any) -> None:
    choice = await complete(client, PROMPT, max_tokens=1, prompt_logprobs=2)
    first, *rest = choice["prompt_logprobs"]
    rows = full_logprobs(reference, PROMPT)
    assert first is None
    assert len(rest) == len(PROMPT) - 1
    for row, token, entry in zip(rows, PROMPT[1:], rest, strict=False):
        assert entry[str(token)]["logprob"] == pytest.approx(float(row[token]), abs=1e-4)
        assert entry[str(token)]["rank"] == int((row > row[token]).sum()) + 1
        assert entry[str(int(row.argmax()))]["rank"] == 1


REFUSED = [
    ({"max_tokens": 507}, "maximum context length is 512 tokens"),
    ({"prompt": []}, "must be provided and non-empty"),
    ({"prompt": [49152]}, "out of vocabulary"),
    ({"prompt": [-1]}, "greater than or equal to 0"),
    ({"max_tokens": 0}, "max_tokens must be at least 1"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": 0, "n": 2}, "greedy"),
    ({"top_p": 0}, "top_p"),
    ({"stop": [""]}, "empty string"),
    ({"stream": True}, "stream"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED, ids=[str(fields) for fields, _ in REFUSED])
async def test_what_cannot_be_done_is_refused_in_vllms_shape(
    client: httpx.AsyncClient, fields: dict[str, Any], message: str
) -> None:
    response = await client.post("/v1/completions", json={"prompt": PROMPT} | fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("BadRequestError", 400)
    assert message in error["message"]


async def test_the_whole_context_window_can_be_used(client: httpx.AsyncClient) -> None:
    choice = await complete(client, PROMPT, max_tokens=506, ignore_eos=True, temperature=0)
    assert len(choice["token_ids"]) == 506


async def test_another_models_name_is_not_found(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/completions", json={"prompt": PROMPT, "model": "gpt"})
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "The model `gpt` does not exist."


class Failing(Engine):
    """Fails every sequence of a request but the first."""

    def submit(self, prompt: Sequence[int], params: SamplingParams, done: Done, index: int = 0) -> Ticket:
        ticket = super().submit(prompt, params, done, index)
        if index:
            done(EngineStopped("planned"))
        return ticket


async def test_where_one_sequence_of_a_request_fails_the_others_are_not_computed_further(tiny: LoadedModel) -> None:
    engine = Failing(tiny.model, tiny.tokenizer, tiny.eos_ids)
    app = Server(engine, "tiny", tiny.path).app()
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
            body = {"prompt": PROMPT, "n": 3, "max_tokens": 500, "ignore_eos": True}
            assert (await client.post("/v1/completions", json=body)).status_code == 503
        await until(lambda: engine.running == engine.waiting == 0)
        assert engine.generated_tokens < 500
