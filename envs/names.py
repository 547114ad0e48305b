"""Find the name that was meant, for messages about one that there is not."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant, None where none is near.

    Options are found without what stands before their last dot, and with `-` for `_` or the other way round."""
    plain = {one.replace("-", "_"): one for one in known}
    wanted = name.replace("-", "_")
    if wanted in plain:
        return plain[wanted]
    outer, _, bare = wanted.lstrip("_").rpartition(".")
    ends: dict[str, list[str]] = {}
    for one in plain:
        ends.setdefault(one.lstrip("_").rpartition(".")[2], []).append(one)
    for end in [bare] if bare in ends else get_close_matches(bare, ends, n=1, cutoff=0.7 if len(bare) > 4 else 0.6):
        beside = [one for one in ends[end] if one.lstrip("_").rpartition(".")[0] == outer]
        return plain[(beside or ends[end])[0]]
    found = get_close_matches(wanted, plain, n=1, cutoff=0.85)
    return plain[found[0]] if found else None


def meant(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Return "; did you mean …?" for a message, or nothing where no known name is near."""
    found = nearest(name, known)
    return f"; did you mean {prefix}{found}?" if found else ""
