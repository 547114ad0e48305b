"""What runs inside the verifier's sandbox imports its neighbours by their bare names, so its tests do too."""

import gc
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import envs.judging

INSIDE = Path(envs.judging.__file__).parent / "inside"
sys.path.append(str(INSIDE))

import runners  # noqa: E402 - it lies there
import suite  # noqa: E402
from node_ids import is_test_module  # noqa: E402


@dataclass(frozen=True)
class Judged:
    """What followed from a call of pytest."""

    status: int
    tests: dict[str, str]
    problem: str | None
    cheat: str | None
    evidence: dict
    call: suite.Suite


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Judges test modules with a solution as in the sandbox, but without another user for the judged code."""
    gc.freeze()  # or the processes that are forked from here go through all that earlier tests have left
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "tox.ini").write_text("[pytest]\n")  # or pytest takes options from what lies above
    for name in ("become_judged", "kill_judged", "open_tree"):
        monkeypatch.setattr(suite, name, lambda *args: None)
    monkeypatch.setattr(suite, "judged_processes", set)
    monkeypatch.setattr(suite, "within", lambda path, folder: False)
    monkeypatch.setattr(suite.Suite, "prepare", lambda call: None)
    for name in ("HERE", "TESTS"):
        monkeypatch.setattr(suite, name, str(tmp_path))
    monkeypatch.setattr(suite, "REPORT", str(tmp_path / "watched.json"))
    monkeypatch.setattr(suite, "RECORD", str(tmp_path / "record.json"))

    def run(files: dict[str, str], *args: str, record: dict | None = None, **lists: object) -> Judged:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        if lists:
            (tmp_path / "tests.json").write_text(json.dumps(lists))
        (tmp_path / "record.json").write_text(json.dumps([record or {}]))
        (tmp_path / "watched.json").write_text("")
        modules = [name for name in files if is_test_module(Path(name).name)]
        options = ["-q", "-W", "default", "-p", "no:xdist", "-p", "no:asyncio", "-p", "no:randomly"]
        call = runners.Pytest([*options, *(args or modules)], here=True)
        status = call.run()
        (seen,) = json.loads((tmp_path / "watched.json").read_text())
        return Judged(status, seen["tests"], seen["problem"], seen["cheat"], seen["evidence"], call)

    return run
