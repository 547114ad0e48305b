"""Tokenizers: SmolLM2's from the package registry always, with small templates of many habits; other
families where there is a folder."""

from pathlib import Path

import pytest
from families import TEMPLATES, family
from transformers import AutoTokenizer

FAMILIES = ("qwen2_5", "qwen3", "llama3_1", "gemma2", "deepseek_v3", "mistral_v3")


@pytest.fixture(scope="session")
def tokenizer(smollm2_tokenizer):
    return smollm2_tokenizer


@pytest.fixture(scope="session", params=("smollm2", *TEMPLATES, *FAMILIES))
def any_tokenizer(request, smollm2_tokenizer, tokenizers_dir: Path | None):
    if request.param == "smollm2":
        return smollm2_tokenizer
    if request.param in TEMPLATES:
        return family(smollm2_tokenizer, request.param)
    if tokenizers_dir is None or not (tokenizers_dir / request.param).is_dir():
        # Other people's tokenizers are not ours to ship; SmolLM2's, from a package, is always tested.
        pytest.skip(f"no folder {request.param} in the tokenizers' directory (--tokenizers DIR)")
    return AutoTokenizer.from_pretrained(tokenizers_dir / request.param)
