"""Load a command's tokenizer. This imports transformers, so that a misspelt option is reported before."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from envs.options.command import UsageError

logger = logging.getLogger(__name__)

LATE_S = 5.0
"""Seconds before a message about a tokenizer still being looked for: an unreachable hub takes 45."""


def load_tokenizer(name: str, *, given: bool = True) -> Any:
    """Load a tokenizer by folder or hub name. Raises UsageError with the remedy.

    given: whether the options name it; else the inference server does."""
    said = "the tokenizer %s is still being looked for at the model hub; HF_HUB_OFFLINE=1 takes what is here already"
    late = threading.Timer(LATE_S, logger.warning, (said, name))
    late.daemon = True
    if not Path(name).is_dir():
        late.start()
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        if not given:
            raise UsageError(
                f"the inference server names its model {name!r}, whose tokenizer can't be loaded here ({reason}); "
                "set --env.tokenizer_name to a folder or a hub name of that model"
            ) from error
        raise UsageError(
            f"--env.tokenizer_name {name!r} can't be loaded ({reason}); "
            "give the folder or the hub name of the model that the inference server serves"
        ) from error
    finally:
        late.cancel()
