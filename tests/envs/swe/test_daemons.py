"""The Docker daemons of a run are asked before it starts."""

import pytest

from envs.swe.config import SWEEnvConfig
from envs.swe.daemons import check_daemons, drop_unusable, sandbox_problems, uses_daemons
from envs.types import BadTasks, Task
from sandboxes.base import SandboxError

NOBODY = "unix:///nowhere/docker.sock"


def test_daemons_are_this_processs_own_only_where_it_opens_the_sandboxes():
    assert uses_daemons(SWEEnvConfig())
    assert not uses_daemons(SWEEnvConfig(workers="ray"))
    assert not uses_daemons(SWEEnvConfig(sandbox="package.module:factory"))


async def problems(**options):
    return [str(one) for one in await sandbox_problems(SWEEnvConfig(**options))]


async def test_options_that_a_backend_can_not_meet_are_refused_by_name_before_anything_is_asked():
    [said] = await problems(sandbox="kubernetes", warm_sandboxes=2, sandbox_runtime="runsc", hosts="ssh://a")
    assert "takes no hosts, pool (--env.warm_sandboxes), runtime (--env.sandbox_runtime)" in said


async def test_a_server_of_e2bs_is_asked_before_a_run(monkeypatch):
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    assert await problems(sandbox="e2b") == ["--env.sandbox e2b: E2B_API_KEY is not set; it holds the API's key"]


@pytest.mark.docker
async def test_a_runtime_that_the_daemon_does_not_know_is_refused_with_those_that_it_does():
    with pytest.raises(ValueError, match=r"--env.sandbox_runtime nosuch: .*choose one of .*runc"):
        await check_daemons(SWEEnvConfig(sandbox_runtime="nosuch"))


@pytest.mark.docker
async def test_of_several_daemons_one_has_to_answer(base_image):
    await check_daemons(SWEEnvConfig(hosts=f"{NOBODY},unix:///var/run/docker.sock"))
    with pytest.raises(SandboxError):
        await check_daemons(SWEEnvConfig(hosts=NOBODY))


async def test_where_no_daemon_answers_no_task_is_left_out():
    parts = ([Task("a", "Do it.", image="one")], [Task("b", "Do it.", image="two")])
    assert await drop_unusable(parts, SWEEnvConfig(hosts=NOBODY)) == parts


@pytest.mark.parametrize(("sandbox", "why"), [("e2b", "make a template of it"), ("kubernetes", "--env.pods.builder")])
async def test_tasks_of_a_dockerfile_are_left_out_before_a_run_where_no_image_is_built(sandbox, why, tmp_path, caplog):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    built, named = Task("built", "Do it.", context=tmp_path), Task("named", "Do it.", image="there")
    made = Task("made", "Do it.", image="of-it", context=tmp_path)
    config = SWEEnvConfig(sandbox=sandbox)
    assert await drop_unusable(([built, named, made], [named]), config) == ([named, made], [named])
    assert "task built: " in caplog.text and why in caplog.text
    with pytest.raises(BadTasks, match=f"task built: .*{why}"):
        await drop_unusable(([built], [named]), config)


async def test_a_cluster_with_a_builder_leaves_no_task_out(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    parts = ([Task("built", "Do it.", context=tmp_path)], [])
    pods = {"registry": "here.example/tasks", "builder": "true"}
    assert await drop_unusable(parts, SWEEnvConfig(sandbox="kubernetes", pods=pods)) == parts
