"""TRL's AsyncGRPOTrainer on a CPU, where it does not start by itself: it asks `torch.cuda` for a name, and takes its
attention from a kernel for GPUs. Both are replaced here, and nothing else of it.

python tests/envs/trainers/trl_on_cpu.py learn --preset smoke --seed 0     # learn --trainer trl, on this machine
python tests/envs/trainers/trl_on_cpu.py shifted --preset smoke --steps 2  # the same with masks shifted by a token
python tests/envs/trainers/trl_on_cpu.py --model … --engine …              # envs.lab.with_trl, as learn starts it
"""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def attention(q: Any, k: Any, v: Any, q_ends: Any, k_ends: Any, *_: Any, softmax_scale: Any = None, **__: Any) -> Any:
    """`flash_attn_varlen_func` by PyTorch: causal, each stretch of queries aligned to the end of its keys."""
    import torch

    out = torch.empty_like(q)
    for (start, end), (first, last) in zip(_pairs(q_ends), _pairs(k_ends), strict=True):
        queries, keys, values = (x.transpose(0, 1)[None] for x in (q[start:end], k[first:last], v[first:last]))
        times = queries.shape[1] // keys.shape[1]
        keys, values = (x.repeat_interleave(times, dim=1) for x in (keys, values))
        mask = torch.ones(end - start, last - first, dtype=torch.bool).tril(last - first - (end - start))
        found = torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, scale=softmax_scale
        )
        out[start:end] = found[0].transpose(0, 1)
    return out


def _pairs(ends: Any) -> Any:
    listed = ends.tolist()
    return pairwise(listed)


def patch() -> None:
    from trl.experimental.async_grpo import async_grpo_trainer, packing

    packing._flash_attn = lambda: SimpleNamespace(flash_attn_varlen_func=attention)
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None


def shift_masks() -> None:
    """Let each row claim the tokens after its sampled ones, with their logprobs."""
    import numpy as np

    from envs.trainers import trl_async

    right = trl_async.Worker._make_sample

    def shifted(*given: Any) -> Any:
        sample = right(*given)
        sample.completion_mask, sample.old_log_probs = (
            np.concatenate([one[:1] * 0, one[:-1]]) for one in (sample.completion_mask, sample.old_log_probs)
        )
        return sample

    trl_async.Worker._make_sample = shifted  # type: ignore[method-assign]


def main(argv: list[str]) -> int:
    command = argv.pop(0) if argv[:1] in (["learn"], ["shifted"]) else ""
    if command and "--model" not in argv:
        from envs.lab import learn

        learn.WITHIN["trl"] = [str(Path(__file__).resolve()), command]
        learn.ON_A_GPU.clear()
        return learn.main([*argv, "--trainer", "trl"])
    patch()
    if command == "shifted":
        shift_masks()
    import torch

    from envs.lab import with_trl

    torch.set_num_threads(1)
    with_trl.main([*argv, "--device", "cpu"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
