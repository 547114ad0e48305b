"""The experts of each token, to which it was routed: trainers of mixture-of-experts models replay them.

As text it is the base64 of NumPy's `.npy`, as vLLM sends it with each reply (`--enable-return-routed-experts`;
vllm/entrypoints/openai/completion/protocol.py, `routed_experts`): integers of shape (tokens - 1, layers, experts of a
token), of prompt and reply together. The last token has none, since nothing was computed after it. Read from answers
of that form; not run with a real mixture-of-experts model.
"""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

Experts = NDArray[np.integer[Any]]


def read_experts(text: str) -> Experts:
    """Return the array in a text. Raises ValueError if it holds none of this shape."""
    try:
        file = io.BytesIO(base64.b64decode(text, validate=True))
        experts: Experts = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # NumPy raises whatever its reading of the header raises
        raise ValueError(f"routed experts are no array: {error}") from error
    if experts.ndim != 3 or not experts.size or not np.issubdtype(experts.dtype, np.integer):
        raise ValueError(f"routed experts have the shape {experts.shape} of {experts.dtype}")
    return experts


def write_experts(experts: Experts) -> str:
    """Return an array as text."""
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(experts), allow_pickle=False)
    return base64.b64encode(file.getvalue()).decode()


def extend_experts(known: Experts | None, returned: Experts | None, tokens: int) -> Experts | None:
    """Return the experts of a growing sequence of `tokens`: a token's experts, reported when it was
    sampled, stay. None if nothing was reported."""
    if returned is None:
        return None
    if known is None or known.shape[1:] != returned.shape[1:]:
        return returned[: tokens - 1]
    return np.concatenate([known, returned[len(known) : tokens - 1]])
