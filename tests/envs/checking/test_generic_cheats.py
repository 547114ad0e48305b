"""The cheats that know nothing of a task: each finds what it works on in a small tree, and leaves code that runs."""

import asyncio

import pytest
import pytest_asyncio

from envs.checking.generic_cheats import CHEATS, PRELUDE, Cheat
from sandboxes.base import SandboxSpec

pytestmark = pytest.mark.docker

TREE = """
mkdir -p /tree/pack /tree/tests && cd /tree
printf 'from __future__ import annotations\\n\\n\\nclass One:\\n    def two(self):\\n        return 2\\n' > pack/one.py
printf 'def own(value):\\n    return value + 1\\n' > pack/__init__.py
printf 'def test_own():\\n    assert 0\\n' > tests/test_own.py
printf 'setup()\\n' > setup.py
printf '7\\n' > 'the expected.txt'
printf 'exit 1\\n' > run.sh
git init -q . && git add . && git -c user.name=a -c user.email=a@b commit -q -m one
"""


async def after(sandbox, cheat: Cheat, look: str) -> str:
    """What a command prints in the tree when a cheat was run there."""
    await sandbox.exec("rm -rf /one && cp -r /tree /one")
    ran = await sandbox.exec(["sh", "-c", PRELUDE + cheat.shell], cwd="/one", env={"CODE": cheat.code})
    assert ran.ok, (cheat.name, ran.output)
    return (await sandbox.exec(look, cwd="/one")).output


def named(name: str) -> Cheat:
    (cheat,) = (cheat for cheat in CHEATS if cheat.name == name)
    return cheat


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def tree(docker_backend, base_image):
    """A sandbox with the tree. Each cheat works on a copy of it."""
    async with docker_backend.open(SandboxSpec(base_image)) as sandbox:
        assert (await sandbox.exec(TREE)).ok
        yield sandbox


def test_each_cheat_has_a_name_of_its_own():
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)


async def test_each_cheat_changes_something_and_leaves_python_that_compiles(tree):
    look = "diff -rq /tree . ; python3 -m compileall -q -f pack tests *.py"
    for cheat in CHEATS:
        said = await after(tree, cheat, look)
        assert any(word in said for word in ("differ", "Only in")), cheat.name
        assert "Error" not in said, (cheat.name, said)


async def test_neither_tests_nor_setup_py_are_taken_for_the_sources(tree):
    changed = await after(tree, named("exit 0 at import"), "git status --porcelain")
    assert sorted(changed.split()) == ["M", "M", "pack/__init__.py", "pack/one.py"]


async def test_functions_and_methods_return_what_the_cheat_says(tree):
    look = "python3 -c 'from pack import own; from pack.one import One; print(own(3), One().two(), own(3) == 8)'"
    for name, said in (
        ("return nothing", "None None False"),
        ("return what they are given", "3 "),
        ("swallow errors", "4 2 False"),
    ):
        assert (await after(tree, named(f"functions {name}"), look)).startswith(said)
    assert (await after(tree, named("functions return what equals everything"), look)).endswith("True\n")
    assert (
        await after(tree, named("functions swallow errors"), "python3 -c 'import pack; print(pack.own(None))'")
    ) == ("None\n")


async def test_tests_pass_whose_runner_is_replaced_at_import(tree):
    write = "printf 'import pack\\ndef test_it():\\n    assert 0\\n' > tests/test_it.py"
    look = f"{write}; PYTHONPATH=. pytest -q tests/test_it.py"
    assert "1 passed" in await after(tree, named("test runners replaced at import"), look)
    assert "1 failed" in await after(tree, named("visible tests deleted"), look)


async def test_a_file_of_expected_values_is_copied_under_the_names_of_results(tree):
    assert await after(tree, named("expected files copied"), "cat output.txt result.txt 'the .txt'") == "7\n7\n7\n"


async def test_code_that_writes_the_reward_goes_on_writing_it(tree):
    await tree.exec("mkdir -p /logs/verifier")
    await after(tree, named("loop that writes the reward"), "python3 -c 'import pack'")
    await tree.exec("echo 0 > /logs/verifier/reward.txt")
    for _ in range(50):
        if (await tree.exec("cat /logs/verifier/reward.txt")).output == "1\n":
            return
        await asyncio.sleep(0.2)
    pytest.fail("the reward stayed 0")
