"""A project's test suite, run in a sandbox as a forged task's `test.sh` runs it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

from sandboxes.base import Sandbox

WORKDIR = "/app"
PYTEST_OPTIONS = (
    *("-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", WORKDIR, "--import-mode=append", "--tb=short", "-q"),
    "--continue-on-collection-errors",
)
_BOOTSTRAP = (
    "import sys; at = [p.endswith('-packages') for p in sys.path].index(True); "
    "sys.path[at:at] = [sys.argv.pop(1), sys.argv.pop(1)]; import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)
_REPORT = "/tmp/forge/junit.xml"
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}")
_ASIDE = re.compile(r"\?\s|\+\s+where\s|-?\s*$")  # pytest's pointers into a difference, and how it got a value
_MAX_REPORT_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Outcome:
    """The report of one run of the suite.

    passed, failed: pytest's node ids; an id reported more than once is in neither.
    files: the test module of each id. messages: pytest's text for each failure.
    """

    passed: frozenset[str]
    failed: frozenset[str]
    files: Mapping[str, str]
    messages: Mapping[str, str]
    duration_s: float
    timed_out: bool = False


def _isolating_command() -> list[str]:
    """Return the command prefix to give the code an empty environment and no rights.

    The hash seed is fixed, since parametrisation often follows the order of a set."""
    clean = "env -i PATH=/usr/bin:/bin HOME=/tmp LANG=C.UTF-8 PYTHONHASHSEED=0 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
    return f"{clean} setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs".split()


def _pytest_command(import_path: str, report: str, files: Sequence[str]) -> list[str]:
    """Return the command to run test modules and write a JUnit report.

    The library comes after the standard library, as for the verifier. Not `-I`, since it would ignore the hash
    seed; the environment is empty already."""
    place = f"{WORKDIR}/{import_path}".removesuffix("/.")
    return [
        *("/usr/bin/python3", "-s", "-P", "-B", "-c", _BOOTSTRAP, WORKDIR, place),
        *(*PYTEST_OPTIONS, "-o", "junit_family=xunit1", "--junitxml", report, *files),
    ]


async def run_suite(sandbox: Sandbox, import_path: str, files: Sequence[str], timeout_s: float) -> Outcome:
    """Run test modules in the sandbox's `/app`. Raises SandboxError."""
    await sandbox.exec("rm -rf /tmp/forge && mkdir -m 777 /tmp/forge")
    command = [*_isolating_command(), *_pytest_command(import_path, _REPORT, files)]
    ran = await sandbox.exec(command, timeout=timeout_s, cwd=WORKDIR, max_output=10_000)
    if ran.timed_out:
        return Outcome(frozenset(), frozenset(), {}, {}, ran.duration_s, timed_out=True)
    try:
        report = await sandbox.read_file(_REPORT, max_bytes=_MAX_REPORT_BYTES)
    except FileNotFoundError:
        report = b""
    return parse_report(report, ran.duration_s, files)


def parse_report(report: bytes, duration_s: float = 0.0, files_run: Sequence[str] = ()) -> Outcome:
    """Read a JUnit report of pytest on these modules; an empty or broken one has no tests."""
    try:
        cases = list(ElementTree.fromstring(report).iter("testcase"))
    except ElementTree.ParseError:
        cases = []
    passed, failed = set(), set()
    files: dict[str, str] = {}
    messages: dict[str, str] = {}
    modules = {file.removesuffix(".py").replace("/", "."): file for file in files_run}
    count = Counter(_node_id(case, modules) for case in cases)
    for case in cases:
        name = _node_id(case, modules)
        if count[name] > 1:
            continue
        files[name] = name.partition("::")[0]
        problems = [child for child in case if child.tag in ("failure", "error", "skipped")]
        if not problems:
            passed.add(name)
        elif problems[0].tag != "skipped":
            failed.add(name)
            messages[name] = problems[0].text or problems[0].get("message") or ""
    return Outcome(frozenset(passed), frozenset(failed), files, messages, duration_s)


def failure_summary(message: str) -> str:
    """Return the failing statement of the test and the error, without the library's frames: they name the cause."""
    lines = message.splitlines()
    statement: list[str] = []
    for line in lines[1:] if lines and re.match(r"\S+:\d+: in ", lines[0]) else []:
        if not line.startswith("    "):
            break
        statement.append(line.strip())
    errors = [line[1:].strip() for line in lines if re.match(r"E\s", line)]
    errors = [_ADDRESS.sub("0x...", line) for line in errors if not _ASIDE.match(line)]
    return "\n".join([*(f">>> {line}" for line in statement[:6]), *(line[:200] for line in errors[:8])])


def _node_id(case: ElementTree.Element, modules: Mapping[str, str]) -> str:
    """Return pytest's own node id: the file, then classes and function, joined by dots in the report.

    modules: files by dotted name; for an inherited test the report's own `file` names the source, not the running
    module.
    """
    parts, name = case.get("classname", "").split("."), case.get("name", "")
    for end in range(len(parts), 0, -1):
        if file := modules.get(".".join(parts[:end])):
            return "::".join([file, *parts[end:], name])
    return "::".join([case.get("file", ""), name])
