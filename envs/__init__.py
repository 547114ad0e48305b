"""Environments: tasks, the run, the verifier, delivery to a trainer."""

import os
import sys
from importlib import import_module

# transformers prints otherwise that there is no PyTorch, which few commands need; it has no other switch.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")

# Not by an import statement: where `sandboxes` itself is another's package, that would not say so.
try:
    import_module("sandboxes.shadowing").check_packages("sandboxes", "tools", "atropos_agent")
except ImportError as error:
    if isinstance(error, ModuleNotFoundError) and error.name not in ("sandboxes", "sandboxes.shadowing"):
        raise
    hidden = isinstance(error, ModuleNotFoundError)
    text = "another package named sandboxes hides that of atropos-agent; rename it" if hidden else str(error)
    if sys.argv[:1] != ["-m"]:  # else Python is looking for the program that the user named
        raise ImportError(text) from error
    print(text, file=sys.stderr)
    raise SystemExit(2) from None
