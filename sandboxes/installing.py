"""How this package was installed, in the commands of messages."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

NAME = "atropos-agent"


def origin() -> dict[str, Any]:
    """Return what pip wrote down of the place that the package was installed from (PEP 610); nothing of an index."""
    try:
        found = json.loads(distribution(NAME).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def install(extra: str) -> str:
    """Return the command that adds an extra to this installation, from where it came."""
    came = origin()
    url, named = str(came.get("url") or ""), f"{NAME}[{extra}]"
    if (folder := came.get("dir_info")) is not None:
        editable = "-e " if folder.get("editable") else ""
        return f"pip install {editable}'{unquote(urlsplit(url).path)}[{extra}]'"
    if (vcs := came.get("vcs_info")) is not None:
        return f"pip install '{named} @ {vcs['vcs']}+{url}@{vcs['commit_id']}'"
    return f"pip install '{named} @ {url}'" if url else f"pip install '{named}'"
