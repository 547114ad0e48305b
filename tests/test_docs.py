"""The pages: what they link to and what they name is there."""

from __future__ import annotations

import pkgutil
import re
import shlex
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from envs.checking import manifest
from envs.cli.program import parse
from envs.delivery.rows import Origin, ScoredGroup
from envs.functions.config import FunctionConfig
from envs.records import atif, provenance
from envs.running import database
from envs.runs import index
from envs.swe.__main__ import main as swe_command
from envs.swe.program import PROGRAM
from sandboxes import __main__ as sandboxes_command
from sandboxes.arguments import Parser

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "envs/swe/starter/README.md"])
# The changelog names what was there as well.
FRAMEWORKS = {"harbor", "inspect_ai", "minisweagent", "trl", "verifiers", "verl", "skyrl", "openrlhf", "areal"}
OF_TODAY = [page for page in PAGES if page.name != "CHANGELOG.md"]
ENTRY_POINTS = {
    group
    for package in ("atropos_agent", "envs", "sandboxes", "tools")
    for module in (ROOT / package).rglob("*.py")
    for group in re.findall(r'resolve\([^)]*"(atropos_agent\.\w+)"\)', module.read_text())
}


def ids(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_link_to_a_file_finds_it(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", OF_TODAY, ids=ids)
def test_every_file_and_folder_that_is_named_exists(page: Path) -> None:
    named = re.findall(
        r"[`=]((?:envs|atropos_agent|tools|sandboxes|tests/\w+|examples|benchmarks|docs|\.ci)/[\w/.-]*)(?=[`\s\"',\]])",
        page.read_text(),
    )
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", OF_TODAY, ids=ids)
def test_every_dotted_name_of_ours_can_be_imported(page: Path) -> None:
    named = re.findall(r"(?<![\w/.(-])((?:envs|atropos_agent|tools|sandboxes)(?:[.:][A-Za-z_]\w*)+)", page.read_text())
    for name in sorted(set(named) - ENTRY_POINTS):
        try:
            pkgutil.resolve_name(name)
        except ModuleNotFoundError as error:  # of a framework that an extra brings
            assert error.name.partition(".")[0] in FRAMEWORKS
        except AttributeError:  # a module that needs such a framework, or a class of it, named with a dot
            assert name.startswith(("sandboxes.adapters.", "envs.trainers."))
            path = ROOT / name.replace(".", "/")
            assert path.with_suffix(".py").exists() or path.parent.with_suffix(".py").exists()


def test_the_walk_of_one_task_names_functions_that_exist() -> None:
    walk = re.findall(r"^\| `([\w/]+)\.py` (`.+?`) \|", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE)
    assert len(walk) >= 10
    for path, functions in walk:
        for function in re.findall(r"`([\w.]+)`", functions):
            pkgutil.resolve_name(f"{path.replace('/', '.')}:{function}")


def test_the_page_of_the_architecture_names_every_room() -> None:
    """What import-linter keeps in order, and every folder in it that holds modules."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rooms = {
        f"{prefix}{room.strip()}".replace(".", "/")
        for contract in contracts
        if contract["type"] == "layers"
        for prefix in [f"{one}." for one in contract.get("containers", [])] or [""]
        for layer in contract["layers"]
        for room in layer.split("|")
        if "__main__" not in room
    }
    page = (ROOT / "docs/architecture.md").read_text()
    named = set(re.findall(r"`((?:envs|atropos_agent|tools|sandboxes)/[\w/]*?)(?:\.py|/)?`", page))
    assert rooms - named <= {"envs", "atropos_agent", "tools", "sandboxes"}


def test_the_page_of_compatibility_names_the_versions_of_today() -> None:
    page = (ROOT / "docs/compatibility.md").read_text()
    rows = dict(re.findall(r"^\| `([\w.]+)`(?: of tasks)? \| ([^|]+) \|", page, re.MULTILINE))
    for file, version in {
        "rollouts.jsonl": f"`extra.{atif.KEY}.format` {atif.FORMAT}; {atif.SCHEMA_VERSION.replace('-', ' ')}",
        "state.db": f"`PRAGMA user_version` {database.VERSION}",
        "run.json": f"`format` {provenance.FORMAT}",
        "manifest.json": f"`version` {manifest.VERSION}",
        "rollouts.index": str(index.VERSION),
    }.items():
        assert rows[file] == version


def test_the_page_of_saved_files_names_every_field_of_a_group() -> None:
    wire = ScoredGroup(Origin(0, "group", "task"), ()).to_wire()
    named = set(re.findall(r"`(\w+)`", (ROOT / "docs/rollouts.md").read_text()))
    assert {*wire, *wire["generation_params"], "delivery_id"} - named == set()


def test_every_module_has_a_file_of_tests_that_is_found_by_its_name() -> None:
    """As CONTRIBUTING.md says; `test_tool_base.py` is one for `tools/base.py`, as other rooms have a base too."""

    def is_tested(module: Path) -> bool:
        name, room = module.stem.strip("_"), ROOT / "tests" / module.parent.relative_to(ROOT)
        return any(re.fullmatch(rf"test_(\w+_)?{name}\.py", file.name) for file in room.glob("test_*.py"))

    modules = [
        module
        for package in ("atropos_agent", "envs", "sandboxes", "tools")
        for module in (ROOT / package).rglob("*.py")
    ]
    ours = [module for module in modules if module.stem != "__init__" and "starter" not in module.parts]
    assert [str(module.relative_to(ROOT)) for module in ours if not is_tested(module)] == []


def commands_of(page: Path) -> list[str]:
    """The commands in a page's blocks whose options are ours to read, a line each."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    blocks = [block for language, block in fenced if language in ("", "sh", "bash", "console")]
    lines = re.sub(r" \[[^\]\n]*\]", "", "\n".join(blocks).replace("\\\n", " ")).splitlines()  # what may be left out
    program = r"python -m envs\.swe|atropos-agent|python -m sandboxes|python \w+\.py"
    found = [re.search(rf"(?:{program}) [a-z]+\b.*", line.partition("  #")[0].partition(" &")[0]) for line in lines]
    return [match[0] for match in found if match is not None]


NOT_OURS = {
    "pip": "installs from an index: by hand, from README on an empty machine",
    "python3": "makes an environment for `pip`",
    "vllm": "wants a GPU",
    "VLLM_": "wants a GPU",
    "run-api": "tests/test_doc_commands.py starts it by its module",
    "python -m atropos_agent.cpu_engine": "tests/test_doc_commands.py starts it",
    "docker": "builds for minutes from an index: by hand, docs/hosts.md",
    "mkdir": "before `docker run`; and for a teacher, beside the command that needs it",
    "kubectl": "wants a cluster: by hand, docs/pods.md",
    "HEAD=": "wants a cluster: by hand, docs/pods.md",
    "--env.pods.": "options of a command above it: tests/sandboxes/kubernetes/test_images.py",
    "export": "the key of a server, in tests/test_doc_commands.py",
    "ray": "tests/test_doc_commands.py starts a cluster",
    "PYTHONPATH=": "conformance: tests/sandboxes/test_own_backend.py; verifiers: by hand, docs/trainers.md",
    "cd tests": "wants a cluster: by hand, docs/pods.md",
    "python tests/envs/trainers/": "these frameworks' own environments: by hand, docs/trainers.md",
    "model=": "beside verifiers, whose environment it is",
    "until curl": "beside verifiers, whose environment it is",
}
"""Lines of shell of other programs, by their beginning, and how they are run instead."""


def test_each_line_of_shell_is_ours_or_is_known_not_to_be():
    pages = [page for page in OF_TODAY if page.parent == ROOT / "docs" or page.name == "README.md"]
    blocks = [
        block for page in pages for block in re.findall(r"^```(?:sh|console)\n(.*?)^```", page.read_text(), re.M | re.S)
    ]
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    ours = r".*(?:python -m envs\.swe|atropos-agent|python -m sandboxes|python \w+\.py) [a-z]+\b"
    unknown = [line for line in lines if line and not re.match(ours, line) and not line.startswith((*NOT_OURS, "#"))]
    assert unknown == []
    assert [one for one in NOT_OURS if not any(line.startswith(one) for line in lines)] == []


COMMANDS = sorted({command for page in OF_TODAY for command in commands_of(page)})
FUNCTION = replace(PROGRAM, config_cls=FunctionConfig)


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_in_a_block_has_the_options_that_it_needs(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, _, rest = line.removeprefix("python ").removeprefix("-m ").partition(" ")
    name, *argv = shlex.split(rest, comments=True)
    while "--config" in argv:  # the reader's own file
        del argv[argv.index("--config") : argv.index("--config") + 2]
    if name in ("serve", "process", "evaluate", "doctor"):
        own = FUNCTION if program.endswith(".py") else PROGRAM
        if "--openai.api_key_var" in argv:  # the reader's own key
            monkeypatch.setenv(argv[argv.index("--openai.api_key_var") + 1], "sk-1")
        parse(own, name, [word for word in argv if word != "--json"])
        return
    real = Parser.parse_args

    def only_parse(*given: Any, **named: Any) -> NoReturn:
        real(*given, **named)
        raise Parsed

    monkeypatch.setattr(Parser, "parse_args", only_parse)
    with pytest.raises(Parsed):
        if program == "sandboxes":
            monkeypatch.setattr(sys, "argv", [program, name, *argv])
            sandboxes_command.main()
        else:
            swe_command([name, *argv])


class Parsed(Exception):
    """The options were read."""


def test_there_are_such_commands() -> None:
    assert len(COMMANDS) > 30


@pytest.mark.parametrize("page", OF_TODAY, ids=ids)
def test_every_extra_that_is_named_is_there(page: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"(?:atropos-agent|-e '?\.)\[([\w,-]+)\]", page.read_text())
    assert {extra for one in named for extra in one.split(",")} <= set(extras)


def test_trls_example_asks_one_inference_server_for_everything():
    (example,) = re.findall(
        r"```python\n((?:(?!```).)*AsyncGRPOConfig\(.*?)```", (ROOT / "docs/trainers.md").read_text(), re.S
    )
    assert "vllm_server_base_url=" in example  # TRL's own default is port 8000
    assert "model_name=model" in example
    assert len(set(re.findall(r"http://localhost:\d+", example))) == 1
