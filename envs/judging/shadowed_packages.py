"""Packages of the source tree with a copy of their own in the image; tests may find the copy instead."""

from __future__ import annotations

from envs.judging.specs import agent_spec
from envs.types import Task
from sandboxes.base import Backend

_LOOK = """
import importlib.machinery, os, sys
tree = os.path.realpath(".")
path = [folder for folder in sys.path if folder and not (os.path.realpath(folder) + "/").startswith(tree + "/")]
for folder in ("", "src", "lib"):
    for entry in sorted(os.listdir(os.path.join(tree, folder))) if os.path.isdir(os.path.join(tree, folder)) else ():
        whole = os.path.join(tree, folder, entry)
        name = entry[:-3] if entry.endswith(".py") else entry if os.path.isfile(whole + "/__init__.py") else ""
        if not name.isidentifier() or name in ("setup", "conftest", "tests", "test", "docs"):
            continue
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        at = os.path.realpath(spec.origin) if spec and spec.origin else ""
        if "-packages/" in at and not at.startswith(tree + "/"):
            print("%s at %s" % (name, at))
"""
_LOOK_S = 60.0


async def installed_copies(backend: Backend, task: Task, image: str) -> list[str]:
    """Return the tree's packages that are installed as copies, each with its place. Raises SandboxError."""
    async with backend.open(agent_spec(task, image)) as sandbox:
        looked = await sandbox.exec(["python3", "-c", _LOOK], timeout=_LOOK_S)
    return looked.output.splitlines() if looked.ok else []
