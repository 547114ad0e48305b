"""Name texts of rollouts that may get new versions while a run goes on, such as prompt templates."""

from __future__ import annotations

import hashlib
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

SYSTEM_PROMPT = "system_prompt"
"""The resource of every environment with our agent."""


class Resource:
    """A text under a name. Every rollout made with it, and each of its rows, has its version and digest.

    version: its name for people; the digest tells versions apart in any case.
    """

    def __init__(self, text: str, *, version: str = "") -> None:
        """Raises ValueError for what is no text, or can't be written in UTF-8."""
        if not isinstance(text, str):
            raise ValueError(f"a resource is a text, and this is {type(text).__name__}")
        text.encode()
        self.text = text
        self.version = version

    @classmethod
    def from_file(cls, path: Path | str) -> Self:
        """Read a text from a file; the file's name is its version."""
        return cls(Path(path).read_text(encoding="utf-8"), version=Path(path).name)

    @property
    def digest(self) -> str:
        """Return the first 16 digits of the text's sha256."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    @property
    def about(self) -> dict[str, str]:
        """Return version and digest, as rows carry them."""
        return {"version": self.version, "digest": self.digest}

    def again(self, text: str, version: str) -> Self:
        """Return a new version of it. Raises ValueError for a text that can't take its place."""
        return type(self)(text, version=version)


class Prompt(Resource):
    """A prompt template, with `{names}` to fill in. text: in the form for `str.format`."""

    def __init__(self, text: str, *, version: str = "") -> None:
        super().__init__(text, version=version)
        try:
            self.names = tuple(dict.fromkeys(name for _, name, _, _ in string.Formatter().parse(text) if name))
        except ValueError as error:
            raise ValueError(f"the prompt template can't be read: {error}; write {{{{ for a brace") from error

    def again(self, text: str, version: str) -> Self:
        """See `Resource`."""
        found = super().again(text, version)
        if set(found.names) != set(self.names):
            raise ValueError(f"it must have the names of the function's own: {', '.join(self.names)}")
        return found

    def format(self, **values: object) -> str:
        """Return the text with all names filled in. Raises ValueError for a missing or unknown name."""
        outer = {name.partition(".")[0].partition("[")[0] for name in self.names}
        if wrong := outer ^ values.keys():
            different = ", ".join(sorted(wrong))
            raise ValueError(
                f"the prompt template has the names {', '.join(sorted(outer)) or '(none)'}: not so {different}"
            )
        return self.text.format(**values)


def versions_of(resources: Mapping[str, Resource]) -> dict[str, Any]:
    """Return version and digest of each resource, by name."""
    return {name: resource.about for name, resource in resources.items()}
