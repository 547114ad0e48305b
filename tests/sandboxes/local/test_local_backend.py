"""The backend without isolation, apart from what the conformance suite tests."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from sandboxes.base import NotSupported, SandboxSpec
from sandboxes.local import LocalBackend
from sandboxes.local.backend import reap_dead_directories
from sandboxes.owner import Owner

SPEC = SandboxSpec("none", workdir="/app")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def test_it_warns_that_it_isolates_nothing_and_leaves_nothing(temporary, caplog):
    async with LocalBackend() as backend, backend.open(SPEC) as box:
        assert Path(box.workdir).is_relative_to(temporary)
    assert "isolates nothing" in caplog.text
    caplog.clear()
    async with LocalBackend(own_commands=True):
        assert not caplog.text
    assert list(temporary.iterdir()) == []


def test_only_directories_of_dead_owners_are_reaped(temporary):
    owner = Owner.of_this_process()
    space = owner.space.replace("-", "")
    boot, _, _ = space.partition(".")
    kept = {
        f"atropos-sandboxes-{space}-{owner.pid}-{owner.start}-{owner.id}-x",
        f"atropos-sandboxes-{boot}.1-{owner.pid}-1-{owner.id}-x",  # of another process namespace
        "atropos-sandboxes-1-1-earlier-x",
        "other",
    }
    dead = {
        f"atropos-sandboxes-{space}-{owner.pid}-1-{owner.id}-y",
        f"atropos-sandboxes-another.1-{owner.pid}-{owner.start}-{owner.id}-y",
    }
    for folder in kept | dead:
        (temporary / folder).mkdir()
    assert reap_dead_directories() == 2
    assert {folder.name for folder in temporary.iterdir()} == kept


async def test_paths_lie_below_its_root_however_they_are_given():
    async with LocalBackend() as backend, backend.open(SPEC) as box:
        await box.write_file("/etc/mine", b"1")
        assert await box.read_file(f"{box.workdir}/../etc/mine") == b"1"
        for outside in ("../../../../x", "../../..", "link/x"):
            await box.exec("ln -sfn /etc link")
            with pytest.raises((PermissionError, FileNotFoundError)):
                await box.read_file(outside)


@pytest.mark.parametrize("spec", [SandboxSpec("none", user="nobody"), SandboxSpec("none", switch_users=True)])
async def test_what_it_cannot_do_it_refuses(spec):
    async with LocalBackend() as backend:
        with pytest.raises(NotSupported):
            async with backend.open(spec):
                pass


async def test_there_are_no_images():
    backend = LocalBackend()
    assert await backend.ensure_image("any") == "any"
    assert await backend.ensure_image(None, Path("/x")) == "local"
    backend.prepare(SPEC, 3)


async def test_a_command_that_becomes_a_program_without_an_environment_keeps_its_time_limit():
    async with LocalBackend() as backend, backend.open(SPEC) as box:
        session = await box.session()
        for run in (box.exec, session.run):
            assert (await asyncio.wait_for(run("exec env -i sleep 30", timeout=0.5), 10)).timed_out
