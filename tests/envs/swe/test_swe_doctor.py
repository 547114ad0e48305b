"""`doctor` of the software engineering environment: what surrounds it."""

import asyncio
import re
from pathlib import Path

import pytest

from envs.cli import program
from envs.cli.doctor import Status
from envs.swe import doctor
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from envs.swe.program import PROGRAM
from envs.types import Task
from sandboxes.docker.crun.availability import Obstacle
from sandboxes.local import LocalBackend
from sandboxes.plurals import plural


def test_wrong_options_are_told(capsys, tmp_path):
    assert program.doctor(PROGRAM, [f"--config={tmp_path / 'none.yaml'}"]) == 2
    assert "none.yaml" in capsys.readouterr().err


async def test_tasks_that_can_not_be_used_end_it(tmp_path):
    [check] = [check async for check in doctor.surroundings(SWEEnvConfig(tasks=str(tmp_path / "none")))]
    assert (check.name, check.status) == ("tasks", Status.WRONG)


async def test_a_docker_daemon_that_does_not_answer_is_wrong_with_its_remedy(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such.sock")
    tasks, sandboxes = [check async for check in doctor.surroundings(SWEEnvConfig())]
    assert tasks.status is Status.OK
    assert (sandboxes.name, sandboxes.status) == ("sandboxes", Status.WRONG)
    assert "/no/such.sock" in sandboxes.text


class SilentBackend(LocalBackend):
    """Its server never answers."""

    async def __aenter__(self):
        await asyncio.Event().wait()


async def test_a_backend_that_never_opens_a_sandbox_ends_no_look(monkeypatch):
    monkeypatch.setattr(doctor, "LOOK_S", 0.1)
    monkeypatch.setattr(doctor, "load_backend", lambda name, **options: SilentBackend())
    config = SWEEnvConfig(sandbox=f"{__name__}:SilentBackend")
    async with asyncio.timeout(60):
        found = [check async for check in doctor._check_other_backend(config, *SWEEnv.load_tasks(config))]
    assert (found[0].name, found[0].status) == ("sandboxes", Status.NOTE)
    assert "within 0.1 s" in found[0].text


class NamedAlone(LocalBackend):
    """It builds no images."""

    def unbuildable(self, context):
        return f"nothing is built of {context}"


async def test_tasks_of_which_a_backend_makes_no_images_are_said(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    tasks = [Task("named", "Do it."), Task("built", "Do it.", context=tmp_path)]
    config = SWEEnvConfig(sandbox=f"{__name__}:NamedAlone")
    found = [check async for check in doctor._check_other_backend(config, tasks, tasks)]
    assert [check.status for check in found if check.name in ("sandboxes", "Dockerfiles")] == [Status.OK, Status.NOTE]
    assert f"1 of 2 tasks can't be used here: task built: nothing is built of {tmp_path}" in found[1].text


def test_free_space_is_that_of_the_nearest_folder_that_is_there(tmp_path):
    check = doctor._check_disk(SWEEnvConfig(run_dir=tmp_path / "not" / "yet"))
    assert check.name == "disk"
    assert list(check.data) == [str(tmp_path / "not" / "yet")]


def test_a_place_for_results_that_can_not_be_written_is_wrong(tmp_path):
    (tmp_path / "file").touch()
    check = doctor._check_disk(SWEEnvConfig(run_dir=tmp_path / "file" / "run"))
    assert check.status is Status.WRONG
    assert f"{tmp_path / 'file'} can't be written; results go there: give another --env.run_dir" in check.text


@pytest.mark.parametrize(
    ("option", "found", "status", "said"),
    [
        (None, Path("/usr/bin/crun"), Status.OK, "/usr/bin/crun, past the Docker daemon"),
        (None, Obstacle("there is no crun"), Status.NOTE, "the Docker daemon.*: there is no crun"),
        ("crun", Obstacle("there is no crun"), Status.WRONG, "there is no crun"),
        ("docker", Path("/usr/bin/crun"), Status.OK, "as --env.sandbox_starter says"),
    ],
)
def test_what_starts_sandboxes_is_said(option, found, status, said):
    check = doctor._check_starter(SWEEnvConfig(sandbox_starter=option), found)
    assert check.status is status
    assert re.search(said, check.text)


@pytest.mark.parametrize(
    ("tasks", "option", "status"), [(2, "skip", Status.NOTE), (2, "refuse", Status.WRONG), (1, "skip", Status.WRONG)]
)
def test_tasks_that_the_docker_daemon_can_not_make_are_said(tasks, option, status):
    check = doctor._check_unusable(["task a: line 3"], tasks, SWEEnvConfig(bad_tasks=option))
    assert check.status is status
    assert check.text == f"1 of {plural(tasks, 'task')} can't be used here: task a: line 3"
