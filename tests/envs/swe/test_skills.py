"""The skills that an agent is shown."""

import asyncio
from types import SimpleNamespace

from envs.swe.environment import SWEEnv
from envs.swe.skills import with_skills
from envs.types import Task
from sandboxes.base import SandboxSpec
from sandboxes.local import LocalBackend

GOOD = "---\nname: tables & sums\ndescription: |\n  Add numbers.\nversion: 2\n---\n# How\n"


def shown(folder):
    async def main():
        async with LocalBackend() as backend, backend.open(SandboxSpec("")) as sandbox:
            return await with_skills("Add them.", sandbox, folder)

    return asyncio.run(main())


def test_skills_with_a_name_and_a_description_stand_below_the_instruction(tmp_path):
    files = {"sums": GOOD, "broken": "---\nname: [\n---\n", "nameless": "---\ndescription: x\n---\n", "bare": "# x\n"}
    for name, text in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(text)
    assert shown(str(tmp_path)) == (
        "Add them.\n\n<available_skills>\n  <skill>\n    <name>tables &amp; sums</name>\n"
        f"    <description>Add numbers.\n</description>\n    <location>{tmp_path}/sums/SKILL.md</location>\n"
        "  </skill>\n</available_skills>"
    )


def test_what_an_earlier_steps_agent_wrote_can_do_nothing(tmp_path):
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefghijklm", "bcdefghijklmn", strict=True)
    )
    files = {
        "bomb": f"{bomb}name: x\ndescription: *n\n",
        "deep": "name: " + "[" * 8000,
        "day": "name: x\ndescription: 2001-13-45\n",
    }
    for name, head in files.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\n{head}---\n")
    assert shown(str(tmp_path)).count("<skill>") == 1


def test_without_skills_the_instruction_is_alone(tmp_path):
    assert {shown(folder) for folder in (None, str(tmp_path), str(tmp_path / "none"))} == {"Add them."}


def test_an_agent_gets_them_with_its_instruction(tmp_path):
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums/SKILL.md").write_text(GOOD)

    async def echo(instruction):
        return instruction

    async def main():
        env = SimpleNamespace(
            config=SimpleNamespace(rollout_timeout_s=9.0), agent=lambda *_, **__: SimpleNamespace(run=echo)
        )
        async with LocalBackend() as backend, backend.open(SandboxSpec("")) as sandbox:
            place = SimpleNamespace(sandbox=sandbox, left_s=lambda most: most)
            return await SWEEnv._work(env, Task("a", "Add them.", skills_dir=str(tmp_path)), None, place, None, None)

    assert "<name>tables &amp; sums</name>" in asyncio.run(main())
