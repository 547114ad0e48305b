"""Rows of a Hugging Face dataset: by its name on the hub, or from a folder with a downloaded or saved copy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atropos_agent.hub import unavailable_reason
from envs.types import BadTask
from sandboxes.installing import install
from sandboxes.naming import lazy_import

_DATASETS = lazy_import("datasets")
_NAME = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*?)(?::(\w[\w.-]*))?")
_FILES = (".jsonl", ".gz", ".json", ".parquet")
_REMEDY = "download its parquet file and give that file's path"


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset. name: on the hub, or a folder. split: None for the only one, or else `test`."""

    name: str
    split: str | None

    @classmethod
    def parse(cls, source: str) -> Dataset | None:
        """Read `FOLDER`, `OWNER/NAME` or one of these with `:SPLIT`. A folder comes before a name.

        None if it can be neither."""
        head, _, split = source.rpartition(":")
        for folder, chosen in ((source, None), (head, split)):
            if folder and Path(folder).is_dir():
                return cls(folder, chosen)
        match = _NAME.fullmatch(source)
        return cls(*match.groups()) if match and not match[1].endswith(_FILES) else None

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each row with its place before it.

        Raises BadTask, also without the package `datasets` or a connection to the hub.
        """
        try:
            datasets = _DATASETS()
        except ImportError:
            raise BadTask(f"{self.name} needs the package datasets ({install('datasets')}); or {_REMEDY}") from None
        if not Path(self.name).is_dir() and (away := unavailable_reason()):
            raise BadTask(f"{self.name} can't be loaded: {away}; {_REMEDY}")
        try:
            if any((Path(self.name) / file).is_file() for file in ("state.json", "dataset_dict.json")):
                saved = datasets.load_from_disk(self.name)
                splits = saved if isinstance(saved, datasets.DatasetDict) else {str(saved.split or "rows"): saved}
                split = self._choose(list(splits))
                table = splits[split]
            else:
                split = self._choose(datasets.get_dataset_split_names(self.name))
                table = datasets.load_dataset(self.name, split=split)
        except BadTask:
            raise
        except Exception as error:  # files, Arrow and HTTP have errors of their own, without a common base
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise BadTask(f"{self.name} can't be loaded: {reason}; {_REMEDY}") from error
        for number, row in enumerate(table, 1):
            yield f"{Path(self.name).name}:{split}:{number}", row

    def _choose(self, splits: list[str]) -> str:
        chosen = self.split or (splits[0] if len(splits) == 1 else "test")
        if chosen not in splits:
            what = f"no split {chosen!r}" if self.split else "several splits"
            raise BadTask(f"{self.name} has {what}: write {self.name}:SPLIT with one of {', '.join(splits)}")
        return chosen
