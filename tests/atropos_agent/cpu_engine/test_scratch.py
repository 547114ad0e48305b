"""A model from scratch is small, repeats with its seed, and is loaded as any other."""

from __future__ import annotations

from pathlib import Path

import torch

from atropos_agent.cpu_engine.model import load, read_weights
from atropos_agent.cpu_engine.scratch import make_model, make_tokenizer
from atropos_agent.types import IGNORED, NO_LOGPROB, SequenceData

TEXTS = ["echo one two three", "echo four five six"] * 4


def test_the_tokenizer_spells_the_words_of_its_texts_in_few_tokens() -> None:
    tokenizer = make_tokenizer(TEXTS, 300)
    ids = tokenizer.encode("echo one two", add_special_tokens=False)
    assert tokenizer.decode(ids) == "echo one two"
    assert len(ids) < len("echo one two") / 2
    rendered = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    assert rendered == "<|im_start|>user\nx<|im_end|>\n"


def test_the_same_seed_makes_the_same_model_and_its_loss_is_told(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(TEXTS, 300)
    rows = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        trained = [IGNORED, *ids[1:]]
        rows.append(SequenceData(text, ids, trained, [NO_LOGPROB, *[-1.0] * (len(ids) - 1)]))
    losses: list[float] = []
    for name in ("a", "b"):
        make_model(rows, tokenizer, tmp_path / name, steps=3, on_step=lambda step, loss: losses.append(loss))
    assert losses[:3] == losses[3:]
    first, second = read_weights(tmp_path / "a"), read_weights(tmp_path / "b")
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    assert load(str(tmp_path / "a"), max_model_len=512).eos_ids == (tokenizer.eos_token_id,)
