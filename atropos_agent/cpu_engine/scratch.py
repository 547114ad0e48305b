"""A Llama of about a million parameters, with a tokenizer of its own, made from text in a minute.

It is good for one narrow kind of dialogue, and small enough for a test to watch it learn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from atropos_agent.cpu_engine.lora import learn_from
from atropos_agent.types import SequenceData

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """Make a ChatML tokenizer that spells the words of `texts` in few tokens."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(texts, vocab_size, min_frequency=2, special_tokens=special, show_progress=False)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=special,
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )


def _make_network(tokenizer: Any, seed: int) -> LlamaForCausalLM:
    """Return an untrained network; the same seed gives the same."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def make_model(
    rows: Sequence[SequenceData],
    tokenizer: Any,
    folder: Path,
    *,
    steps: int,
    batch: int = 8,
    learning_rate: float = 3e-3,
    seed: int = 0,
    begun: Path | None = None,
    on_step: Callable[[int, float], None] | None = None,
) -> None:
    """Train a network on the rows, and save it with its tokenizer; the same seed gives the same.

    begun: the folder of the network; a fresh one without. on_step: called with the number of the step and the batch's
    loss in nats per token.
    """
    network = _make_network(tokenizer, seed) if begun is None else LlamaForCausalLM.from_pretrained(begun)
    rng = random.Random(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=learning_rate, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps, pct_start=0.1)
    for step in range(steps):
        loss = learn_from(network, rng.sample(rows, batch))
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if on_step is not None:
            on_step(step + 1, loss)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
