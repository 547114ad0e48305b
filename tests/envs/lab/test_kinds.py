"""The kinds of made-up tasks: none is one of the starter pack, no wrong command solves one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from envs.lab.kinds import KINDS
from envs.lab.synthetic import Example, examples
from envs.swe import STARTER
from envs.tasks.harbor import load_tasks


def test_no_starter_task_is_worded_as_a_made_up_one() -> None:
    starter = [task.instruction.strip() for task in load_tasks(STARTER) if "terminal" in task.tags]
    for wording in (wording for kind in KINDS for wording in kind.wordings):
        # A text may have blanks, what all other fields stand for has none.
        pattern = re.sub(r"\\{(\w+)\\}", lambda field: ".+" if field[1] == "text" else r"\S+", re.escape(wording))
        assert not [said for said in starter if re.fullmatch(pattern, said, re.IGNORECASE)], wording


def left(task: Example, command: str, place: Path) -> dict[str, str | None]:
    """What a command leaves of a task's files, directories as None, permissions with the text."""
    place.mkdir()
    for name, text in task.files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    subprocess.run(["sh", "-c", command], cwd=place, capture_output=True, check=False)
    return {
        str(path.relative_to(place)): f"{path.stat().st_mode:o} {path.read_text()}" if path.is_file() else None
        for path in place.rglob("*")
    }


def test_no_slip_solves_its_task(tmp_path: Path) -> None:
    for number, task in enumerate(examples(4 * len(KINDS), 5)):
        wanted = left(task, task.command, tmp_path / f"{number}")
        assert wanted != left(task, "true", tmp_path / f"{number}-nothing"), task
        for slip in task.slips:
            assert left(task, slip, tmp_path / f"{number}-{task.slips.index(slip)}") != wanted, (task, slip)
