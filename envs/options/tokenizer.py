"""Load a command's tokenizer. This imports transformers, so that a misspelt option is reported before."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.integrations.mistral import convert_tekken_tokenizer
from transformers.utils.hub import cached_file

from atropos_agent.hub import unavailable_reason
from envs.options.command import UsageError


def load_tokenizer(
    name: str,
    *,
    given: bool = True,
    trust_remote_code: bool = False,
    option: str = "--env.tokenizer_name",
    trust_option: str = "--env.trust_remote_code=true",
) -> Any:
    """Load a tokenizer by folder or hub name. Raises UsageError with the remedy.

    given: whether the options name it; else the inference server does.
    trust_remote_code: whether to run the program that some tokenizers are (Kimi's).
    option, trust_option: the command's options for these two."""
    local = name.startswith(("/", "./", "../", "~")) or name.count("/") > 1 or Path(name).is_dir()
    away = None if local else unavailable_reason()
    try:
        if local and not Path(name).is_dir():
            raise NotADirectoryError("there is no such folder")
        return _load(name, local_files_only=away is not None, trust_remote_code=trust_remote_code)
    except Exception as error:  # of files of all kinds: tokenizers raises plain ones
        if "trust_remote_code" in str(error):
            raise UsageError(
                f"the tokenizer of {name!r} is a Python program of the model's authors; read it, and set "
                f"{trust_option} to run it here"
            ) from error
        reason = away or (str(error).strip() or repr(error)).splitlines()[0]
        here = f", or run `hf download {name}` where it can be reached and give that folder" if away else ""
        if not given:
            raise UsageError(
                f"the inference server names its model {name!r}, whose tokenizer can't be loaded here ({reason}); "
                f"set {option} to a folder or a hub name of that model{here}"
            ) from error
        raise UsageError(
            f"{option} {name!r} can't be loaded ({reason}); "
            f"give the folder or the hub name of the model that the inference server serves{here}"
        ) from error


def _load(name: str, *, trust_remote_code: bool, **options: Any) -> Any:
    """Load a tokenizer with its chat template."""
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=trust_remote_code, **options)
    if type(tokenizer).__name__ != "MistralCommonBackend":
        return tokenizer
    # Where mistral-common is installed, as beside vLLM, transformers takes its tokenizer for Mistral's models. It has
    # no chat template. Most of these models have an ordinary one as well; else it is made.
    with suppress(OSError, ValueError):
        ordinary = PreTrainedTokenizerFast.from_pretrained(name, **options)
        if ordinary.chat_template:
            return ordinary
    return convert_tekken_tokenizer(cached_file(name, "tekken.json", **options))
