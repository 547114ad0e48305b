"""The environment for Harbor."""

import logging

import pytest

pytest.importorskip("harbor", reason="Harbor is not installed; it needs Python 3.12")

from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

from sandboxes.adapters.harbor import AtroposEnvironment

pytestmark = [pytest.mark.docker, pytest.mark.filterwarnings("default")]


@pytest.fixture
def made(base_image, tmp_path):
    """What makes an environment of a task's folder."""

    def made(dockerfile=None, **options):
        folder = tmp_path / "environment"
        folder.mkdir()
        (folder / "given.txt").write_text("given")
        if dockerfile:
            (folder / "Dockerfile").write_text(dockerfile)
        policy = options.pop("policy", NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
        config = EnvironmentConfig(**({} if dockerfile else {"docker_image": base_image}) | options)
        return AtroposEnvironment(
            environment_dir=folder,
            environment_name="task",
            session_id="task__1",
            trial_paths=TrialPaths(trial_dir=tmp_path / "trial"),
            task_env_config=config,
            network_policy=policy,
            logger=logging.getLogger("test"),
        )

    return made


async def test_commands_are_run_as_harbor_says(made):
    environment = made(workdir="/made", env={"COLOUR": "green"}, cpus=0.5, memory_mb=256)
    await environment.start(False)
    try:
        ran = await environment.exec("pwd; echo $COLOUR $A; ls; echo bad >&2; exit 3", env={"A": "b"})
        assert (ran.return_code, ran.stdout, ran.stderr) == (3, "/made\ngreen b\ngiven.txt\n", "bad\n")
        assert (await environment.exec("id -un", user="nobody")).stdout == "nobody\n"
        with environment.with_default_user(65534):
            assert (await environment.exec("id -u; pwd", cwd="/tmp")).stdout == "65534\n/tmp\n"
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            await environment.exec("sleep 60", timeout_sec=1)
        assert await environment.is_dir("/logs/verifier")
    finally:
        await environment.stop(True)
    with pytest.raises(RuntimeError, match="stopped"):
        await environment.exec("true")


async def test_files_and_folders_go_in_and_come_out(made, tmp_path):
    environment = made()
    await environment.start(False)
    try:
        tests = tmp_path / "tests"
        (tests / "deep").mkdir(parents=True)
        (tests / "test.sh").write_text("echo ran")
        (tests / "test.sh").chmod(0o755)
        (tests / "deep/file").write_bytes(b"\0\xff")
        await environment.upload_dir(tests, "/tests")
        await environment.upload_file(tests / "test.sh", "/new/place/script")
        assert (await environment.exec("/tests/test.sh; /new/place/script; stat -c %U /tests/test.sh")).stdout == (
            "ran\nran\nroot\n"
        )
        await environment.exec("echo 1 >/logs/verifier/reward.txt; mkfifo /tests/pipe")
        await environment.download_file("/logs/verifier/reward.txt", tmp_path / "out/reward.txt")
        assert (tmp_path / "out/reward.txt").read_text() == "1\n"
        await environment.download_dir("/tests", tmp_path / "back")
        assert (tmp_path / "back/deep/file").read_bytes() == b"\0\xff"
        await environment.exec(
            "ln -s ../logs/verifier /to-folder; ln -s to-folder/reward.txt /to-file; ln -s x /nowhere"
        )
        await environment.download_file("/to-file", tmp_path / "by-link")
        assert (tmp_path / "by-link").read_text() == "1\n"
        for path, error in {
            "/none": FileNotFoundError,
            "/nowhere": FileNotFoundError,
            "/logs/agent": IsADirectoryError,
            "/logs/verifier": IsADirectoryError,
            "/to-folder": IsADirectoryError,
            "/tests/pipe": ValueError,
        }.items():
            with pytest.raises(error, match=path):
                await environment.download_file(path, tmp_path / "none")
        assert not (tmp_path / "none").exists()
    finally:
        await environment.stop(True)


async def test_a_dockerfile_is_built(made, base_image):
    environment = made(f"FROM {base_image}\nWORKDIR /here\nCOPY given.txt .\n")
    await environment.start(False)
    try:
        assert (await environment.exec("pwd; cat given.txt")).stdout == "/here\ngiven"
    finally:
        await environment.stop(True)


def test_networks_and_several_containers(made, tmp_path):
    listed = made(policy=NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["a.example", "10.1.0.0/16"]))
    assert listed._limits().allowed_hosts == ("a.example", "10.1.0.0/16")
    assert not listed._limits().network
    (tmp_path / "environment/docker-compose.yaml").write_text("services: {}")
    config = EnvironmentConfig()
    with pytest.raises(ValueError, match="several containers"):
        AtroposEnvironment(tmp_path / "environment", "task", "t", TrialPaths(trial_dir=tmp_path), config)
