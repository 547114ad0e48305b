"""Environments: tasks, the run, the verifier, delivery to a trainer."""

from importlib import import_module

# Not by an import statement: where `sandboxes` itself is another's package, that would not say so.
try:
    import_module("sandboxes.shadowing").check_packages("sandboxes", "tools", "atropos_agent")
except ModuleNotFoundError as error:
    if error.name not in ("sandboxes", "sandboxes.shadowing"):
        raise
    raise ImportError("another package named sandboxes hides that of atropos-agent; rename it") from error
