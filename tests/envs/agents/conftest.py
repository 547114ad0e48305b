"""Tokenizer families for real agents, each with its own tool format."""

import pytest
from native_families import fitted_family

FAMILIES = (
    "smollm2",
    "Qwen3-Coder, by hand",
    "GLM 4.5, by hand",
    "Kimi K2, by hand",
    "qwen3",
    "llama3_1",
    "deepseek_v31",
)


@pytest.fixture(params=FAMILIES)
def fitted(request, smollm2_tokenizer, tokenizers_dir):
    found = fitted_family(smollm2_tokenizer, tokenizers_dir, request.param)
    if found is None:
        pytest.skip(f"{request.param}'s tokenizer is not there (--tokenizers)")
    return found


@pytest.fixture(params=FAMILIES[:4])
def native(request, smollm2_tokenizer):
    return fitted_family(smollm2_tokenizer, None, request.param)


@pytest.fixture
def hermes(smollm2_tokenizer):
    return fitted_family(smollm2_tokenizer, None, "smollm2")
