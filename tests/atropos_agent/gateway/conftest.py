"""The family that most tests use."""

import pytest
from native_families import fitted_family


@pytest.fixture(scope="session")
def fitted(smollm2_tokenizer):
    return fitted_family(smollm2_tokenizer, None, "smollm2")


@pytest.fixture(scope="session")
def with_calls(smollm2_tokenizer):
    """A family whose template takes calls as such."""
    return fitted_family(smollm2_tokenizer, None, "Qwen3-Coder, by hand")
