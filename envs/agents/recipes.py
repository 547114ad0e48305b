"""Recipes: the packages of an agent, and their installation for an image."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from envs.types import Failure, InfraError

NODE = "node-linux-{cpu}@24.21.0"
"""Node.js from npm, for agents in need of it. It is built for glibc."""


_PINNED = re.compile(r"(@|==)([0-9][0-9A-Za-z.+]*)")
"""A version in the name of a package."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The platform of an image. cpu: npm's name of it. libc: "glibc" or "musl". python: "3.11", "" for none."""

    cpu: str
    libc: str
    python: str = ""

    @property
    def machine(self) -> str:
        """Return Linux's name of the processor."""
        return {"x64": "x86_64", "arm64": "aarch64"}[self.cpu]

    @property
    def musl(self) -> str:
        return "-musl" if self.libc == "musl" else ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """The content of a pack: packages of one registry, with their versions. None for an agent already in the image.

    npm: "{cpu}" stands for npm's name of the processor, "{musl}" for "-musl" in images of that C library.
    pypi: requirements, installed for the image's own Python. bare: others, without their dependencies: some need
        source-only packages, built by a script. They have a folder of their own, because two packages of one
        namespace can't be installed into one by two commands.
    libc: its C library ("glibc"), "" for any. least_python: its oldest Python.
    """

    npm: Sequence[str] = ()
    pypi: Sequence[str] = ()
    bare: Sequence[str] = ()
    libc: str = ""
    least_python: str = "3.10"

    @property
    def pin(self) -> str:
        """Return the pinned version of the agent; "" if none is."""
        found = _PINNED.search(next(iter((*self.npm, *self.pypi)), ""))
        return found[2] if found else ""

    def with_version(self, version: str) -> Recipe:
        """Return the recipe with another version of the agent, and of its packages released with it. Raises
        ValueError if none is pinned, or for what is no version."""
        pinned = self.pin
        if not pinned or not _PINNED.fullmatch(f"@{version}"):
            raise ValueError(f"{version!r} is no version of a package of its recipe")

        def moved(packages: Sequence[str]) -> tuple[str, ...]:
            return tuple(
                _PINNED.sub(lambda found: f"{found[1]}{version}" if found[2] == pinned else found[0], package)
                for package in packages
            )

        return replace(self, npm=moved(self.npm), pypi=moved(self.pypi), bare=moved(self.bare))

    def packages_for(self, platform: Platform, agent: str) -> tuple[str, ...]:
        """Return the packages for a platform. Raises InfraError if the agent can't run there."""
        if self.libc and platform.libc != self.libc:
            raise InfraError(
                Failure.TASK,
                f"agent {agent} is built for {self.libc} and the task's image has {platform.libc}: use an image "
                "such as debian or ubuntu",
            )
        if self.pypi and not platform.python:
            raise InfraError(
                Failure.TASK,
                f"agent {agent} is a Python program and the task's image has no python3: install it in the image",
            )
        if self.pypi and _parse_version(platform.python) < _parse_version(self.least_python):
            raise InfraError(
                Failure.TASK,
                f"agent {agent} needs Python {self.least_python} and the task's image has {platform.python}",
            )
        return tuple(name.format(cpu=platform.cpu, musl=platform.musl) for name in self.npm) or tuple(self.pypi)

    def commands(
        self, platform: Platform, packages: Sequence[str], folder: Path, *, locked: bool = False
    ) -> list[list[str]]:
        """Return the commands to install packages into a folder. No script of theirs is run.

        locked: whether their lock is in the folder (`locks.write`): then it alone says what is installed."""
        if self.npm:
            return [_npm_command(platform, () if locked else packages, folder, "ci" if locked else "install")]
        if locked:
            given = ("--no-deps", "--require-hashes", f"--requirement={folder / 'locked.txt'}")
            return [_pip_command(platform, given, folder / "python")]
        commands = [_pip_command(platform, packages, folder / "python")]
        return commands + ([[*_pip_command(platform, self.bare, folder / "bare"), "--no-deps"]] if self.bare else [])


def _npm_command(platform: Platform, packages: Sequence[str], folder: Path, how: str) -> list[str]:
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-save", "--force", "--loglevel=error")
    target = (f"--prefix={folder}", "--os=linux", f"--cpu={platform.cpu}", f"--libc={platform.libc}")
    return ["npm", how, *quiet, *target, *packages]


def _pip_command(platform: Platform, packages: Sequence[str], folder: Path) -> list[str]:
    abi, newest = ("musllinux_1", 2) if platform.libc == "musl" else ("manylinux_2", 34)
    tags = [f"--platform={abi}_{minor}_{platform.machine}" for minor in range(newest, 0, -1)]
    if platform.libc == "glibc":
        tags.append(f"--platform=manylinux2014_{platform.machine}")
    quiet = ("--quiet", "--disable-pip-version-check", "--only-binary=:all:", "--implementation=cp")
    target = [f"--target={folder}", f"--python-version={platform.python}"]
    if _parse_version(platform.python) > sys.version_info[:2]:
        # pip compares what a package requires with the Python that it runs on itself (`pip install` of 23 to 26).
        target.append("--ignore-requires-python")
    # -E: where PYTHONPYCACHEPREFIX is set the pack would be without bytecode, and compiled again in each sandbox.
    return [sys.executable, "-E", "-m", "pip", "install", *quiet, *target, *tags, *packages]


def _parse_version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part)
