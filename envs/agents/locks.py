"""Locks: the exact packages of a pack, with their hashes, beside its recipe.

A lock stands for the packages named in its recipe. An agent of another version has none: its packages' dependencies are
then the registry's of the day.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from envs.agents.recipes import Platform, Recipe

FOLDER = Path(__file__).with_name("locked")
_OF = "# of: "
_UV = ("uv", "pip", "compile", "--universal", "--format=pylock.toml", "--only-binary=:all:", "--quiet")
_LEFT_OUT = frozenset({"resolved", "funding", "license", "engines", "deprecated"})
"""Fields of npm's locks without meaning for an installation."""
_NPM = (
    *("npm", "install", "--package-lock-only", "--save-exact", "--ignore-scripts", "--no-audit", "--no-fund"),
    "--force",
)


class LockError(Exception):
    """A lock can't be made."""


def path_of(agent: str, platform: Platform, recipe: Recipe, folder: Path = FOLDER) -> Path:
    """Return the place of an agent's lock; npm's names of packages differ by processor and C library."""
    return folder / (f"{agent}-{platform.cpu}{platform.musl}.json" if recipe.npm else f"{agent}.txt")


def find(agent: str, platform: Platform, recipe: Recipe, folder: Path = FOLDER) -> str:
    """Return an agent's lock; "" if there is none of these packages."""
    path = path_of(agent, platform, recipe, folder)
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8")
    return text if _locked_packages(text, recipe) == _packages_of(recipe, platform) else ""


def digest(lock: str) -> str:
    """Return the name of a lock's or another text's content; "" for none."""
    return hashlib.sha256(lock.encode()).hexdigest()[:16] if lock else ""


def write(lock: str, recipe: Recipe, platform: Platform, folder: Path) -> None:
    """Put a lock where the recipe's commands look for it."""
    if recipe.npm:
        (folder / "package-lock.json").write_text(lock, encoding="utf-8")
        root = json.loads(lock)["packages"][""]
        (folder / "package.json").write_text(json.dumps({"name": "pack", **root}), encoding="utf-8")
        return
    (folder / "locked.txt").write_text("\n".join(_requirements_for(lock, platform)) + "\n", encoding="utf-8")


def build(recipe: Recipe, platform: Platform) -> str:
    """Make the lock of a recipe, by the registry. Raises LockError."""
    with tempfile.TemporaryDirectory() as folder:
        return _lock_npm(recipe, platform, Path(folder)) if recipe.npm else _lock_pypi(recipe)


def _lock_npm(recipe: Recipe, platform: Platform, folder: Path) -> str:
    target = (f"--prefix={folder}", "--os=linux", f"--cpu={platform.cpu}", f"--libc={platform.libc}")
    _run([*_NPM, "--omit-lockfile-registry-resolved", *target, *_packages_of(recipe, platform)])
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    lock["name"] = "pack"
    packages = {path: one for path, one in lock.pop("packages").items() if _is_for_platform(one, platform)}
    names = {path.rpartition("node_modules/")[2] for path in packages}
    lines = ",\n".join(f"{json.dumps(path)}: {json.dumps(_strip_entry(one, names))}" for path, one in packages.items())
    return f'{json.dumps(lock)[:-1]}, "packages": {{\n{lines}\n}}}}\n'


def _is_for_platform(package: Mapping[str, Any], platform: Platform) -> bool:
    """Tell whether a package is for a platform: a lock of npm's has optional ones for all."""
    wanted = {"os": "linux", "cpu": platform.cpu, "libc": platform.libc}
    constraints = {key: package[key] for key in wanted if key in package}
    lists = {key: {given} if isinstance(given, str) else set(given) for key, given in constraints.items()}
    return all(
        wanted[key] in given or (all(one.startswith("!") for one in given) and f"!{wanted[key]}" not in given)
        for key, given in lists.items()
    )


def _strip_entry(package: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return a package's entry with its optional dependencies that are locked: `npm ci` misses others."""
    kept = {key: value for key, value in package.items() if key not in _LEFT_OUT}
    if "optionalDependencies" in kept:
        optional = kept["optionalDependencies"].items()
        kept["optionalDependencies"] = {name: version for name, version in optional if name in names}
    return kept


def _lock_pypi(recipe: Recipe) -> str:
    oldest = (f"--python-version={recipe.least_python}", "-")
    locked = [_run([*_UV, *oldest], "\n".join(recipe.pypi))]
    if recipe.bare:
        locked.append(_run([*_UV, "--no-deps", *oldest], "\n".join(recipe.bare)))
    lines = (line for one in locked for line in _requirements(one, recipe.least_python))
    return "\n".join((f"{_OF}{' '.join((*recipe.pypi, *recipe.bare))}", *lines, ""))


def _requirements(pylock: str, least_python: str) -> Iterator[str]:
    """Yield the packages of a pylock.toml as requirements, with the hashes of wheels for Linux."""
    always = f"python_full_version >= '{least_python}'"
    for package in tomllib.loads(pylock)["packages"]:
        hashes = [wheel["hashes"]["sha256"] for wheel in package.get("wheels", ()) if _is_for_linux(wheel["url"])]
        marker = package.get("marker", always)
        if hashes:
            named = f"{package['name']}=={package['version']}" + ("" if marker == always else f" ; {marker}")
            yield " ".join((named, *(f"--hash=sha256:{one}" for one in sorted(hashes))))


def _is_for_linux(url: str) -> bool:
    """Tell whether a wheel is for CPython 3 on one of the processors of packs."""
    *_, tags = parse_wheel_filename(unquote(url.rpartition("/")[2]))
    return any(
        tag.interpreter.startswith(("py3", "cp3"))
        and not tag.abi.endswith("t")
        and (tag.platform == "any" or re.search("linux.*(x86_64|aarch64)$", tag.platform))
        for tag in tags
    )


def _run(command: Sequence[str], given: str = "") -> str:
    if shutil.which(command[0]) is None:
        raise LockError(f"there is no {command[0]} here: install it (uv is a package of PyPI, npm comes with Node.js)")
    env = {**os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    ran = subprocess.run(command, check=False, input=given, capture_output=True, text=True, env=env)
    if ran.returncode:
        raise LockError(f"{' '.join(command[:3])} said: {ran.stderr.strip()[-1000:]}")
    return ran.stdout


def _packages_of(recipe: Recipe, platform: Platform) -> list[str]:
    if recipe.npm:
        return sorted(name.format(cpu=platform.cpu, musl=platform.musl) for name in recipe.npm)
    return [*recipe.pypi, *recipe.bare]


def _locked_packages(lock: str, recipe: Recipe) -> list[str]:
    if recipe.npm:
        root: Mapping[str, Mapping[str, str]] = json.loads(lock)["packages"][""]
        return sorted(f"{name}@{version}" for name, version in root.get("dependencies", {}).items())
    first, *_ = lock.splitlines()
    return first.removeprefix(_OF).split()


def _requirements_for(lock: str, platform: Platform) -> Iterator[str]:
    """Yield the locked requirements of a platform, without conditions: pip would compare those with its own Python."""
    about = {
        "python_version": platform.python,
        "python_full_version": f"{platform.python}.0",
        "platform_machine": platform.machine,
        **{"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
        **{"implementation_name": "cpython", "platform_python_implementation": "CPython"},
    }
    for line in lock.splitlines()[1:]:
        named, *hashes = line.split(" --hash=")
        wanted = Requirement(named.strip())
        if wanted.marker is None or wanted.marker.evaluate(about):
            wanted.marker = None
            yield " ".join((str(wanted), *(f"--hash={one.strip()}" for one in hashes)))
