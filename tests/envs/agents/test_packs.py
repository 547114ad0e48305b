"""Packs: installed once, named by their content."""

import asyncio
import stat
import zipfile

import pytest

from envs.agents.packs import pack_of, size
from envs.agents.recipes import Platform, Recipe
from envs.running.permanent import is_permanent
from envs.types import InfraError

DEBIAN = Platform("x64", "glibc", "3.11")
NPM = """#!/bin/sh
echo "$*" >>"$0.asked"
for word; do case $word in --prefix=*) to=${word#--prefix=};; esac; done
mkdir -p "$to/node_modules/agent" && cd "$to/node_modules/agent" || exit 1
printf '#!/bin/sh' >run && chmod 700 run && printf secret >data && chmod 600 data && ln -s run link
[ "$word" != broken@1 ] || { echo "no such package"; exit 1; }
[ "$word" != a@99 ] || { echo "npm error code ETARGET"; exit 1; }
"""


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A stand-in for npm, and what it was asked."""
    program = tmp_path / "bin/npm"
    program.parent.mkdir()
    program.write_text(NPM)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")

    def asked():
        file = program.with_name("npm.asked")
        return file.read_text().splitlines() if file.exists() else []

    return asked


async def test_it_is_installed_once_and_the_same_content_is_the_same_folder(npm, tmp_path):
    root = tmp_path / "packs"
    packs = await asyncio.gather(*(pack_of("a", Recipe(npm=("a@1",)), DEBIAN, root) for _ in range(3)))
    again = await pack_of("a", Recipe(npm=("a@1",)), DEBIAN, root)
    assert {*packs, again} == {packs[0]}
    assert len(npm()) == 1
    other = await pack_of("a", Recipe(npm=("a@2",)), DEBIAN, root)
    assert other == packs[0], "another recipe, the same content"
    assert len(npm()) == 2
    assert sorted(path.name for path in root.iterdir()) == [".lock", packs[0].name, "by-recipe"]
    assert packs[0].name.startswith("a-")
    assert size(packs[0]) > 10


async def test_everybody_may_read_it(npm, tmp_path):
    pack = await pack_of("a", Recipe(npm=("a@1",)), DEBIAN, tmp_path / "packs")
    modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in pack.rglob("*") if not path.is_symlink()}
    assert (modes["run"], modes["data"], modes["agent"] & 0o555) == (0o755, 0o644, 0o555)
    assert (pack / "node_modules/agent/link").readlink().name == "run"


async def test_what_cannot_be_installed_leaves_nothing_and_says_why(npm, tmp_path):
    root = tmp_path / "packs"
    with pytest.raises(InfraError, match=r"agent a can't be installed: npm install .*no such package") as raised:
        await pack_of("a", Recipe(npm=("broken@1",)), DEBIAN, root)
    assert not is_permanent(raised.value), "the registry may have been away"
    assert [path.name for path in root.iterdir()] == [".lock"]


async def test_a_version_that_does_not_exist_is_tried_no_more(npm, tmp_path):
    with pytest.raises(InfraError, match="ETARGET") as raised:
        await pack_of("a", Recipe(npm=("a@99",)), DEBIAN, tmp_path / "packs")
    assert is_permanent(raised.value)


async def test_without_npm_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InfraError, match=r"there is no npm here; install it \(Node.js brings npm\)") as raised:
        await pack_of("a", Recipe(npm=("a@1",)), DEBIAN, tmp_path / "packs")
    assert is_permanent(raised.value)


async def test_what_an_interrupted_installation_left_goes(npm, tmp_path):
    left = tmp_path / "packs/new-left"
    left.mkdir(parents=True)
    await pack_of("a", Recipe(npm=("a@1",)), DEBIAN, tmp_path / "packs")
    assert not left.exists()


async def test_programs_of_python_are_compiled_once_whatever_this_python_was_told(tmp_path, monkeypatch):
    wheel = tmp_path / "agent-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("agent.py", "print(1)")
        file.writestr("agent-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: agent\nVersion: 1\n")
        file.writestr("agent-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("agent-1.dist-info/RECORD", "")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    pack = await pack_of("a", Recipe(pypi=(str(wheel),)), DEBIAN, tmp_path / "packs")
    assert [path.suffix for path in pack.glob("python/__pycache__/agent.*")] == [".pyc"]
