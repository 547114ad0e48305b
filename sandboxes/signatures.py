"""Read the parameters of a function that somebody else wrote."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

_OPTIONS: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    from annotationlib import Format

    _OPTIONS["annotation_format"] = Format.FORWARDREF


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """Return a function's signature.

    From Python 3.14 on an annotation may name things that only type checkers import: such a name stays a `ForwardRef`,
    where `inspect.signature` by itself raises NameError. Raises TypeError and ValueError as that does."""
    return inspect.signature(function, **_OPTIONS)  # noqa: TID251 - here alone
