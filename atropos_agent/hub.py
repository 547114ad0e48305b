"""Ask whether the Hugging Face hub answers. Its own library tries each request for half a minute before it says so."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from huggingface_hub import constants, is_offline_mode
from huggingface_hub.utils import get_session


def unavailable_reason() -> str | None:
    """Return why the hub can't be used, or None if it answers, or if `HF_HUB_OFFLINE` says not to ask.

    It has the library's own time, `HF_HUB_ETAG_TIMEOUT`; a name server that is cut off would take longer than that."""
    if is_offline_mode():
        return None
    found: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    seconds = constants.HF_HUB_ETAG_TIMEOUT
    threading.Thread(target=_ask, args=(seconds, found.put), daemon=True).start()
    try:
        reason = found.get(timeout=seconds)
    except queue.Empty:
        reason = f"no answer within {seconds:g} seconds; HF_HUB_ETAG_TIMEOUT gives it more"
    return reason and f"{constants.ENDPOINT} can't be reached: {reason}"


def _ask(seconds: float, put: Callable[[str | None], None]) -> None:
    """Make one request, without repetitions."""
    try:
        status = get_session().head(constants.ENDPOINT, timeout=seconds).status_code
    except Exception as error:  # of httpx or of httpx2, as the library's version has it
        put(str(error) or type(error).__name__)
    else:
        put(f"it answers {status}" if status >= 500 else None)
