"""The command `agents update`: newer versions of other people's agents, and their pins moved when a check passed."""

from __future__ import annotations

import asyncio
import inspect
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from atropos_agent.fitted import FittedFormat
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig
from envs.agents import locks
from envs.agents.examine import examine_agent
from envs.agents.facts import ForeignAgent
from envs.agents.naming import FOREIGN
from envs.agents.parsers import updates_parser
from envs.agents.recipes import Platform, Recipe
from envs.cli.checks import Status
from envs.messages import SWE, replace_command
from envs.options import UsageError
from envs.options.tokenizer import load_tokenizer
from envs.records.tables import Sheet, make_console
from envs.running.stopping import run_to_end
from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend
from sandboxes.docker.images.base_image import BASE_IMAGE

_ASK_S = 60.0
_NAME = re.compile(r"(.+?)(@|==|\[)[^/]*$")
_FOUND = re.compile(r"[^(]*\(([^)]+)\)")
PLATFORMS = (Platform("x64", "glibc"), Platform("arm64", "glibc"))


def main(argv: Sequence[str], *, prog: str = SWE) -> int:
    """Show what is newer, and move pins. Returns 0, or 1 when an agent did not pass, 2 for wrong options."""
    prog = replace_command(prog)
    options = updates_parser(prog).parse_args(argv)
    unknown = [name for name in options.names if name not in FOREIGN]
    wrong = f"there is no agent {', '.join(unknown)}; there are {', '.join(FOREIGN)}" if unknown else ""
    if options.write and not (options.names and options.tokenizer):
        wrong = wrong or "--write wants the names of agents and --tokenizer"
    if options.to and len(options.names) != 1:
        wrong = wrong or "--to is for one agent"
    tokenizer = None
    try:
        if options.write and not wrong:
            tokenizer = load_tokenizer(
                options.tokenizer,
                trust_remote_code=options.trust_remote_code,
                option="--tokenizer",
                trust_option="--trust-remote-code",
            )
    except UsageError as error:
        wrong = str(error)
    if wrong:
        print(f"{prog} agents update: {wrong}", file=sys.stderr)
        return 2
    agents = {name: FOREIGN[name] for name in options.names or FOREIGN}
    newest = {name: options.to or newest_of(agent.recipe) for name, agent in agents.items()}
    make_console().print(table(agents, newest))
    if tokenizer is None:
        return 0
    fitted = FittedFormat.of("auto", ChatTemplate(tokenizer))
    image = options.image or BASE_IMAGE
    moved = [run_to_end(update_agent(agent, newest[name], fitted, image)) for name, agent in agents.items()]
    return 0 if all(moved) else 1


def newest_of(recipe: Recipe) -> str:
    """Return the registry's newest version of an agent's own package; "" if it is unknown."""
    (package,) = (*recipe.npm, *recipe.pypi)[:1] or ("",)
    named = _NAME.match(package.format(cpu="x64", musl=""))
    if named is None:
        return ""
    if recipe.npm:
        return _read_first_line(["npm", "view", named[1], "version"])
    of = ("--only-binary=:all:", f"--python-version={recipe.least_python}", "--disable-pip-version-check")
    found = _FOUND.match(_read_first_line([sys.executable, "-m", "pip", "index", "versions", named[1], *of]))
    return found[1] if found else ""


def table(agents: Mapping[str, ForeignAgent], newest: Mapping[str, str]) -> Sheet:
    """Return a row for each agent."""
    made = Sheet("agent", "pinned", "newest", "", "locked")
    for name, agent in agents.items():
        behind = "unknown" if not newest[name] else "" if newest[name] == agent.recipe.pin else "behind"
        held = [platform.cpu for platform in PLATFORMS if locks.find(name, platform, agent.recipe)]
        made.add(name, agent.recipe.pin, newest[name] or "—", behind, ", ".join(held) or "no")
    return made


async def update_agent(agent: ForeignAgent, version: str, fitted: FittedFormat, image: str = BASE_IMAGE) -> bool:
    """Move an agent's pin and its locks to a version, if the agent works there. Returns whether it does."""
    old, new = agent.recipe, agent.recipe.with_version(version)
    places = {platform: locks.path_of(agent.name, platform, old) for platform in PLATFORMS}
    before = {path: path.read_text(encoding="utf-8") if path.exists() else None for path in places.values()}
    passed = False
    try:
        if await asyncio.to_thread(_lock, new, places):
            passed = await agent_works(replace(agent, recipe=new), fitted, image)
    finally:
        if not passed:
            _restore(before)
    if passed and version != old.pin:
        _move_pin(Path(inspect.getfile(agent.start)), old.pin, version)
    print(f"{agent.name}@{version}: " + ("its pin and its locks are written" if passed else "nothing is changed"))
    return passed


async def agent_works(agent: ForeignAgent, fitted: FittedFormat, image: str = BASE_IMAGE) -> bool:
    """Return whether an agent makes one row of a scripted conversation; what was seen is printed."""
    async with DockerBackend() as backend:
        spec = SandboxSpec(await backend.ensure_image(image), workdir="/app")
        checks = [check async for check in examine_agent(agent, backend, spec, fitted, AgentConfig())]
    for check in checks:
        print(f"{check.name}: {check.status.value}: {check.text}")
    return all(check.status is Status.OK or check.name == "agent's room" for check in checks)


def _lock(recipe: Recipe, places: Mapping[Platform, Path]) -> bool:
    """Write the locks of a recipe; return whether there is one for the first platform. Others may lack a package."""
    made = dict[Path, str]()
    for platform, path in places.items():
        try:
            made[path] = locks.build(recipe, platform)
        except locks.LockError as error:
            print(f"no lock for {platform.cpu}: {error}")
    for path in places.values():
        path.unlink(missing_ok=True)
    for path, lock in made.items():
        path.write_text(lock, encoding="utf-8")
    return next(iter(places.values())) in made


def _move_pin(source: Path, old: str, new: str) -> None:
    text = source.read_text(encoding="utf-8")
    source.write_text(re.sub(rf"(?<=[@=]){re.escape(old)}(?![0-9.])", new, text), encoding="utf-8")


def _restore(before: Mapping[Path, str | None]) -> None:
    for path, text in before.items():
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.write_text(text, encoding="utf-8")


def _read_first_line(command: Sequence[str]) -> str:
    """Return the first line that a command says of the registry; "" if it fails."""
    try:
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = ran.stdout.strip().splitlines()
    return "" if ran.returncode or not lines else lines[0]
