"""Modules of tests among decoys, run in this process or by a pytest of their own whose reports come through a door."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import json
import os
import random
import shutil
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import envs.judging
from envs.judging.decoys.insertion import DecoyedTests, insert_decoys
from envs.judging.decoys.key import Key
from envs.judging.decoys.node_ids import is_test_module
from envs.judging.decoys.sets import Decoys, looked_for, vocabulary
from envs.judging.decoys.sites import plant
from envs.judging.decoys.source_tests import SourceTests
from envs.judging.decoys.text import Text
from envs.judging.reports.evidence import Evidence
from envs.judging.reports.outcome import Outcome, outcome_of
from envs.judging.reports.receiver import Message, Receiver
from envs.judging.reports.required import RequiredTests

INSIDE = Path(envs.judging.__file__).parent / "inside"
PATH = "/tests/test_a.py"


def inside(name: str) -> types.ModuleType:
    """A module of those that run in the sandbox, loaded in this process; it listens to nothing here."""
    stub = types.ModuleType("verifier_hook")
    stub.loaded = inside  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location(f"verifier_{name}", INSIDE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["verifier_hook"] = stub
    try:
        spec.loader.exec_module(module)
    finally:
        sys.modules.pop("verifier_hook", None)
    return module


REPORTER = inside("reporter")


class Line:
    """The way to the judge, of which only the end is there. messages: what came."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def write(self, line: str) -> None:
        self.messages.append(json.loads(line))

    def load(self, *what: object) -> None:
        """A module is run, which these tests do themselves."""


def planted_with(source: str | bytes, seed: int = 0) -> DecoyedTests:
    """A module with its decoys, drawn as a seed says."""
    data = source if isinstance(source, bytes) else source.encode()
    text, key, chance = Text(data, PATH), Key(), random.Random(seed)
    decoys = Decoys(chance, vocabulary([text.tree]), looked_for([text.tree]))
    plant(PATH, text, key, decoys, ())
    return DecoyedTests({PATH: text.edited()}, key, SourceTests({PATH: text.tree}, {PATH: data}))


def text_of(source: str | bytes, seed: int = 0) -> tuple[bytes, Key]:
    """A module with its decoys, and their key."""
    made = planted_with(source, seed)
    return made.texts[PATH], made.key


def double(x: Any) -> Any:
    return x * 2 if x is not None else None + 1  # type: ignore[operator]


class Run:
    """One test of a module, decoyed and run in this process. failed: what it raised."""

    def __init__(
        self, source: str, function: Callable[..., Any] = double, seed: int = 0, test: str = "test_f", **given: Any
    ) -> None:
        self.decoyed = planted_with(source, seed)
        self.key = self.decoyed.key
        line = Line()
        self.probe = REPORTER.Probe(line)
        self.names: dict[str, Any] = {"__verifier__": self.probe, "f": function, "__name__": "test_a"}
        self.failed: BaseException | None = None
        self.id = f"test_a.py::{test}"
        self.messages = line.messages
        self.messages.append({"kind": "start", "id": self.id})
        try:
            exec(compile(self.decoyed.texts[PATH], "test_a.py", "exec"), self.names)
            self.names[test](**given)
        except (Exception, pytest.fail.Exception) as error:
            self.failed = error

    def evidence(self, record: Mapping[str, Any] | None = None) -> Evidence:
        seen = Evidence(self.decoyed, record or {})
        seen.read(self.messages)
        return seen

    def verdict(self, status: str = "", record: Mapping[str, Any] | None = None) -> tuple[str, str | None]:
        """How the test ended by what its sites report, and the sign of cheating in that."""
        ended = status or ("failed" if self.failed else "passed")
        found, sign = self.evidence(record).judge({self.id: ended}, lambda test: True)
        return found[self.id], sign

    def record(self) -> Mapping[str, Any]:
        """What is recorded of the reference."""
        return self.evidence().report({self.id: "passed"})


@dataclass(frozen=True)
class Judged:
    """What followed from a run of pytest or unittest: its status, what it printed, and what was seen of it."""

    status: int
    output: str
    outcome: Outcome | None
    decoyed: DecoyedTests
    calls: list[Any]

    @property
    def problem(self) -> str | None:
        return "nothing was seen" if self.outcome is None else self.outcome.problem

    @property
    def sign(self) -> str | None:
        return None if self.outcome is None else self.outcome.sign

    @property
    def tests(self) -> Mapping[str, str]:
        return {} if self.outcome is None else self.outcome.statuses


async def judge_modules(
    root: Path,
    files: Mapping[str, str | bytes],
    command: str = "-m pytest -q -p no:cacheprovider",
    record: Mapping[str, Any] | None = None,
    **listed: Any,
) -> Judged:
    """Run modules of tests as they are run in the sandbox: decoyed, in a Python that loads the hook, with a door."""
    made, receiver = await asyncio.to_thread(_laid_out, root, files), Receiver()
    server = await asyncio.get_running_loop().create_server(receiver.door, "127.0.0.1", 0)
    async with server:
        env = await asyncio.to_thread(hooked, root / ".hook", server.sockets[0].getsockname()[1])
        running = await asyncio.create_subprocess_exec(
            sys.executable, *command.split(), cwd=root, env=env, stdout=-1, stderr=asyncio.subprocess.STDOUT
        )
        output, _ = await running.communicate()
        calls = await receiver.calls()
    outcome = outcome_of(calls, made, RequiredTests(listed, record or {}))
    return Judged(running.returncode or 0, output.decode(), outcome, made, calls)


def _laid_out(root: Path, files: Mapping[str, str | bytes]) -> DecoyedTests:
    """Write files, with decoys in the modules of tests."""
    modules = {}
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        if is_test_module(Path(name).name):
            modules[f"{root}/{name}"] = (root / name).read_bytes()
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:xdist -p no:randomly -W default\n")
    made = insert_decoys(modules)
    for path, data in made.texts.items():
        Path(path).write_bytes(data)
    return made


def hooked(home: Path, port: int) -> dict[str, str]:
    """The environment of a Python that loads the hook, with its files in a folder of the test's."""
    home.mkdir(exist_ok=True)
    for path in INSIDE.glob("*.py"):
        shutil.copyfile(path, home / path.name)
        (home / path.name).write_text(path.read_text().replace('"/verifier', f'"{home}'))
    (home / "verifier_hook.pth").write_text((INSIDE / "verifier_hook.pth").read_text().replace("/verifier", str(home)))
    (home / "port").write_text(str(port))
    (home / "sitecustomize.py").write_text("import verifier_hook\n")
    known = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**known, "PYTHONPATH": f"{home}:.", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
