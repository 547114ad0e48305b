"""Keep secrets out of written text: each known value becomes `***`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_IN_URL = re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)")
_SHORTEST = 8
"""Least characters of a secret; shorter values are words like "none"."""


class Redactor(logging.Filter):
    """Replaces secrets in text, and in log records when it is a handler's filter."""

    def __init__(self, secrets: Iterable[str | None] = ()) -> None:
        super().__init__()
        values = {secret for secret in secrets if secret and len(secret) >= _SHORTEST}
        # The longest first, so that a value that holds another is replaced as a whole.
        self._secrets = sorted(values, key=len, reverse=True)

    @classmethod
    def of(cls, environment: Mapping[str, str], more: Iterable[str | None] = ()) -> Redactor:
        """Make one for the values of variables with names like `HF_TOKEN`, and `more`."""
        return cls([*(value for name, value in environment.items() if _NAMES.search(name)), *more])

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _IN_URL.sub("***", text)

    def value(self, value: Any) -> Any:
        """Return a value for JSON with redacted texts. `text` is not for its JSON: quotes are other letters there, and
        a number may look like a secret."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.value(name): self.value(item) for name, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list | tuple) else value

    def filter(self, record: logging.LogRecord) -> bool:
        """Make the record's whole text, traceback included, and redact it."""
        message = record.getMessage()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self.text(record.exc_text)
        record.msg, record.args = self.text(message), ()
        return True
