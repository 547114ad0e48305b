"""The `tests/` of rows with printed results as the only report: Go's, Rust's, JavaScript's and others.

| field (first that is present) | becomes |
|---|---|
| `eval_script` | the commands between its marks and before them, but for reset and patch, which are done already |
| `test_cmds`, `test_cmd`, also in `install_config` | the test commands, a text or a list |
| `rebuild_cmds`, `build` | run before them; what they print is not read |
| `print_cmds` | print the results; what the test commands print is not read then |
| `log_parser`, `parser`, also in `install_config` | a key of `PARSERS`, or Python source of a function `parser(log)` |
| `repo`, `version` | where the row has no command or parser: the key in the lists of the package `swebench` (4.x) |

The commands run in one bash. Their output is bounded, and each listed test must be seen there to pass. Failed,
skipped and missing tests count as failed, and so does a test printed with two statuses. If the runner's names tell
tests apart (in Go: within a package, in Rust: within a program), a test printed twice counts as failed, too. A killed
or missing command, or one out of time, fails all; so does one with a failing exit code and no printed test.

Durations in names are left out, in the lists as in the output. A dataset's own parser runs by the image's Python.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

from envs.tasks.adapters.dataset_rows import Row
from envs.tasks.adapters.directory import INSIDE
from envs.types import BadTask
from sandboxes.installing import install

PARSERS: Mapping[str, str] = {
    "parse_log_ant": "ant",
    "parse_log_cargo": "cargo",
    "parse_log_carbon": "jest-files",
    "parse_log_cucumber": "cucumber",
    "parse_log_googletest": "googletest",
    "parse_log_gotest": "go",
    "parse_log_gradle_custom": "gradle",
    "parse_log_gradlew_v1": "junit-gradle",
    "parse_log_grommet": "jest-files",
    "parse_log_immutable_js": "jest jest-json",
    "parse_log_java_mvn": "surefire maven junit",
    "parse_log_jekyll": "minitest cucumber",
    "parse_log_jest": "jest",
    "parse_log_jest_json": "jest-json",
    "parse_log_jq": "automake",
    "parse_log_js": "ticks",
    "parse_log_js_4": "ticks",
    "parse_log_junit": "junit",
    "parse_log_karma": "karma",
    "parse_log_maven": "maven",
    "parse_log_micropython_test": "micropython",
    "parse_log_minitest": "minitest",
    "parse_log_npx": "ticks",
    "parse_log_phpunit": "phpunit",
    "parse_log_react_pdf": "jest-files",
    "parse_log_redis": "redis",
    "parse_log_rspec_transformed_json": "rspec",
    "parse_log_ruby_unit": "ruby-unit",
    "parse_log_ruby_v2": "minitest",
    "parse_log_sbt": "junit",
    "parse_log_tap": "tap",
    "parse_log_vitest": "vitest",
    "parse_java_mvn": "surefire maven junit",
}
"""The known parsers of swebench and SWE-rebench, each with its form of `printed.awk`."""

_REPEATS = {
    *("jest", "jest-json", "ticks", "vitest", "tap", "junit", "junit-gradle", "surefire", "cucumber", "minitest"),
    *("redis", "rspec", "ruby-unit"),
}
"""Forms with ambiguous names of tests: titles without their files and groups, cases without their values."""
_MAX_OUTPUT = 64 * 2**20
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""A terminal's colours in names of tests; `printed.awk` leaves them out of the output."""
_REGION = re.compile(
    r"(.*)^[^\n]*>>>>> Start Test Output[^\n]*\n(.*)^[^\n]*>>>>> End Test Output", re.DOTALL | re.MULTILINE
)
# What an eval_script does to the test files before: history is squashed, and the patch applied by root.
_RESET = re.compile(r"^git checkout [0-9a-f]{7,40}\b.*$", re.MULTILINE)
_APPLY = re.compile(r"^git apply\b[^\n]*<<\s*'?(\w+)'?\n.*?^\1$", re.DOTALL | re.MULTILINE)


def has_known_parser(row: Row) -> bool:
    """Return whether the row names a known way to read its tests' output."""
    parser = _first_setting(row, "log_parser", "parser")
    return isinstance(parser, str) and (parser in PARSERS or _is_source(parser))


def printed_verifier(row: Row, listed: Sequence[str], *, workdir: str, prepare: str) -> dict[str, str]:
    """Return `tests/` by path in the task directory. listed: the tests to be seen to pass. Raises BadTask."""
    if row.values.get("eval_type") == "fail_only":
        raise _bad_row(row, "eval_type fail_only takes a test that doesn't run for one that passes; leave the row out")
    listed = [_CONTROL.sub("", name) for name in listed]
    odd = next((name for name in listed if "\n" in name or not name.strip()), None)
    if odd is not None:
        raise _bad_row(row, f"{odd!r} is not the name of a test on one line, so it can't be found")
    parser = _parser(row)
    source = _is_source(parser)
    forms = "" if source else PARSERS[parser]
    parse = (
        "python3 -I /tests/parser.py"
        if source
        else f"tr -d '\\000' | LC_ALL=C awk -v forms={shlex.quote(forms)} -f /tests/printed.awk"
    )
    script = _read_inside("printed.sh")
    for mark, value in {
        "@WORKDIR@": shlex.quote(workdir),
        "@PREPARE@": prepare,
        "@LIMIT@": str(_MAX_OUTPUT),
        "@PARSE@": parse,
        "@REPEATS@": str(int(bool(_REPEATS & set(forms.split())))),
    }.items():
        script = script.replace(mark, value)
    return {
        "tests/test.sh": script,
        "tests/commands.sh": _commands(row, trace="maven" in forms),
        "tests/listed": "".join(f"{name.strip()}\n" for name in listed),
        "tests/verdict.awk": _read_inside("verdict.awk"),
        **(
            {"tests/parser.py": parser + _read_inside("parser.py")}
            if source
            else {"tests/printed.awk": _read_inside("printed.awk")}
        ),
    }


def _commands(row: Row, *, trace: bool) -> str:
    """Return a bash script with output to be read. trace: with its commands."""
    build = "\n".join(filter(None, (_lines(row, name) for name in ("rebuild_cmds", "build"))))
    show = _lines(row, "print_cmds")
    script = row.text("eval_script", default="")
    test = _lines(row, "test_cmds") or _lines(row, "test_cmd")
    if script:
        region = _REGION.match(script)
        if region is None:
            raise _bad_row(row, "eval_script has no >>>>> Start Test Output and >>>>> End Test Output around its tests")
        if _APPLY.search(script) and not row.values.get("test_patch"):
            raise _bad_row(row, "test_patch is missing, and eval_script has one; put it into test_patch")
        build, test, show = _RESET.sub("", _APPLY.sub("", region[1])), region[2], ""
    elif not test:
        specification = _specification(row)
        build, test = _join_commands(specification.get("build")), _join_commands(specification["test_cmd"])
    read = "exec >&3 3>&- 2>&1\n" + ("set -x\n" if trace else "")
    body = f"{test}\nended=$?\n{read}{show}\nexit $ended\n" if show else f"{read}{test}\n"
    return f"exec 3>&1 >&2\nset -o pipefail\n{build}\n{body}"


def _parser(row: Row) -> str:
    """Return the name of a parser, or the source of one."""
    parser = _first_setting(row, "log_parser", "parser")
    if parser is None:
        parser = _swebench_entry(row, "log_parsers", "MAP_REPO_TO_PARSER", "log_parser").__name__
    if not isinstance(parser, str) or not (parser in PARSERS or _is_source(parser)):
        raise _bad_row(row, f"log_parser {parser!r} isn't known; known are {', '.join(PARSERS)}")
    return parser


def _is_source(parser: str) -> bool:
    return re.search(r"^def parser\(", parser, re.MULTILINE) is not None


def _specification(row: Row) -> Mapping[str, Any]:
    versions = _swebench_entry(row, "constants", "MAP_REPO_VERSION_TO_SPECS", "test_cmd")
    version = row.text("version", default="")
    if version not in versions:
        raise _bad_row(row, f"test_cmd is missing, and swebench has no version {version!r} of the repository")
    found: Mapping[str, Any] = versions[version]
    return found


def _swebench_entry(row: Row, module: str, table: str, field: str) -> Any:
    """Return the entry for the row's repository in a list of the package."""
    repo = row.text("repo", default="")
    try:
        lists = getattr(import_module(f"swebench.harness.{module}"), table)
    except (ImportError, AttributeError):
        raise _bad_row(
            row, f"{field} is missing; {install('swebench')} gives the list of the package swebench"
        ) from None
    for name in (repo, repo.lower()):
        if name in lists:
            return lists[name]
    raise _bad_row(row, f"{field} is missing, and the package swebench doesn't know the repository {repo!r}")


def _first_setting(row: Row, *names: str) -> Any:
    """Return the first value among the named fields, in the row or in its install_config."""
    more = row.table("install_config") if row.values.get("install_config") else {}
    return next((table[name] for table in (row.values, more) for name in names if table.get(name)), None)


def _lines(row: Row, name: str) -> str:
    try:
        return _join_commands(_first_setting(row, name))
    except TypeError:
        raise _bad_row(row, f"{name} must be a command or a list of commands") from None


def _join_commands(commands: Any) -> str:
    """Return commands as lines. Raises TypeError for other values."""
    if isinstance(commands, str) and commands.startswith("["):
        with suppress(ValueError):  # a test in brackets
            commands = json.loads(commands)
    return commands if isinstance(commands, str) else "\n".join(commands or ())


def _read_inside(name: str) -> str:
    return (INSIDE / name).read_text(encoding="utf-8")


def _bad_row(row: Row, problem: str) -> BadTask:
    return BadTask(f"{row.where}: {row.text('instance_id')}: {problem}")
