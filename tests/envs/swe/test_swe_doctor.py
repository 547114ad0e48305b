"""`doctor` of the software engineering environment: what surrounds it."""

from envs import cli
from envs.doctor import Status
from envs.swe import doctor
from envs.swe.config import SWEEnvConfig
from envs.swe.program import PROGRAM


def test_wrong_options_are_told(capsys, tmp_path):
    assert cli.doctor(PROGRAM, [f"--config={tmp_path / 'none.yaml'}"]) == 2
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


def test_free_space_is_that_of_the_nearest_folder_that_is_there(tmp_path):
    check = doctor._disk(tmp_path / "not" / "yet")
    assert check.name == "disk"
    assert list(check.data) == [str(tmp_path / "not" / "yet")]
