"""Whose options of pytest hold in files that have other options too."""

import tomllib

import pytest
from stopwatch import Stopwatch

from envs.judging.pytest_options import merged

PYPROJECT = b'[project]\nversion = "1"\n\n[tool.pytest.ini_options]\naddopts = "-q"\n\n[tool.black]\nx = 1\n'
SETUP = b"[metadata]\nversion = 1\n\n[tool:pytest]\naddopts = -q\n\n[flake8]\nx = 1\n"
TOX = b"[tox]\nenvlist = py\n[pytest]\naddopts = -q\n"


@pytest.mark.parametrize(
    "name, image, old, new",
    [
        ("pyproject.toml", PYPROJECT, b'version = "1"', b'version = "2"'),
        ("setup.cfg", SETUP, b"version = 1", b"version = 2  "),
        ("tox.ini", TOX, b"envlist = py", b"envlist = py, lint"),
    ],
)
def test_other_options_are_carried_byte_for_byte(name, image, old, new):
    theirs = image.replace(old, new) + b"# their own\n"
    assert merged(name, theirs, image) == theirs


@pytest.mark.parametrize(
    "theirs",
    [
        '[project]\nversion = "2"\n[tool.pytest.ini_options]\naddopts = "-k nothing"\n',
        '[project]\nversion = "2"\n[tool.pytest]\naddopts = ["-k", "nothing"]\n',
        '[project]\nversion = "2"\n[ tool."pytest".ini_options ]  # mine\nmarkers = [\n    "slow",\n]\n',
        '[project]\nversion = "2"\n[tool.pytest-plugin]\nx = 1\n',
        '[project]\nversion = "2"\n[project.entry-points.pytest11]\nx = "evil"\n',
        '[project]\nversion = "2"\n',
    ],
)
def test_pytests_tables_are_the_images(theirs):
    found = tomllib.loads(merged("pyproject.toml", theirs.encode(), PYPROJECT).decode())
    assert found["project"].pop("version") == "2"
    assert found["tool"] == {"pytest": {"ini_options": {"addopts": "-q"}}}
    assert not found["project"].get("entry-points")


@pytest.mark.parametrize(
    "theirs",
    [
        "[metadata]\nversion = 2\n[tool:pytest]\naddopts = -k nothing\n",
        "[metadata]\nversion = 2\n[ tool:pytest ]\naddopts = -k nothing\n",
        "[metadata]\nversion = 2\n[pytest]\naddopts = -k nothing\n",
        "[metadata]\nversion = 2",
    ],
)
def test_pytests_sections_are_the_images(theirs):
    assert merged("setup.cfg", theirs.encode(), SETUP) == b"[metadata]\nversion = 2\n[tool:pytest]\naddopts = -q\n\n"


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.cfg"])
def test_what_the_image_does_not_have_is_left_out(name):
    theirs = b"[tool.pytest]\nx = 1\n" if name.endswith("toml") else b"[tool:pytest]\nx = 1\n[a]\nb = 1\n"
    assert merged(name, theirs, None) == (b"" if name.endswith("toml") else b"[a]\nb = 1\n")


@pytest.mark.parametrize(
    "name, theirs",
    [
        ("pyproject.toml", b"tool = [pytest"),
        ("pyproject.toml", b"tool = 'pytest'"),
        ("pyproject.toml", b"\xff pytest"),
        ("pyproject.toml", b'["t\\u006fol"."pyt\\u0065st".ini_options]\naddopts = "-k nothing"\n'),
        ("pyproject.toml", b'tool.pytest.ini_options.addopts = "-k nothing"\n'),
        ("pyproject.toml", b'tool = {pytest = {ini_options = {addopts = "-k nothing"}}}\n'),
        ("pyproject.toml", b"[project]\nentry-points = {pytest11 = {x = 'evil'}}\n"),
        ("setup.cfg", b"pytest"),
        ("setup.cfg", b"[a]\n[a]\n[pytest]\n"),
        ("setup.cfg", b"[a]\nb = 1\n [pytest]\n addopts = -k nothing\n"),
    ],
)
def test_what_can_not_be_told_apart_is_withheld(name, theirs):
    assert merged(name, theirs, PYPROJECT if name.endswith("toml") else SETUP) is None


@pytest.mark.parametrize("line", ["a{} = 1", "x{}" + ".a" * 8000 + " = 1", "x{}" + '."\u2028"' * 40_000 + " = 1"])
def test_a_large_file_holds_nobody_up(line):
    watch = Stopwatch()
    lines = "\n".join(line.format(number) for number in range(300_000 // len(line)))
    merged("pyproject.toml", f"[tool.pytest]\na = 1\n[x]\n{lines}".encode(), PYPROJECT)
    assert watch.seconds < 20
