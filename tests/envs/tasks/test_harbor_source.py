"""What a task's files give to its agent and to its verifier."""

import re

import pytest
from harbor_samples import make_task

from envs.judging.changes import _is_protected
from envs.judging.specs import verifier_spec
from envs.tasks.harbor import load_task
from envs.types import BadTask, Collect


def test_canary_lines_are_not_shown_to_the_agent(tmp_path):
    directory = make_task(tmp_path)
    (directory / "instruction.md").write_text("<!-- harbor-canary GUID 1 -->\n# CANARY 2\n\n# Do it\n\n# canary\n")
    assert load_task(directory).instruction == "# Do it\n\n# canary"


def test_a_separate_verifier_sees_the_artifacts_alone(tmp_path):
    toml = """
    artifacts = ["/app/out.json", { source = "/app/logs", destination = "logs", exclude = ["*.tmp"] }]
    [verifier]
    environment_mode = "separate"
    [[verifier.collect]]
    command = "dump > /app/out.json"
    user = 0
    """
    hidden = load_task(make_task(tmp_path, toml)).hidden
    assert (hidden.graded, hidden.graded_alone) == (("/logs/artifacts", "/app/out.json", "/app/logs"), True)
    assert hidden.collect == (Collect("dump > /app/out.json", "0", 60.0),)
    assert hidden.own is None


def test_a_hook_is_run_by_the_images_user_whoever_the_agent_is(tmp_path):
    toml = '[agent]\nuser = "agent"\n[[verifier.collect]]\ncommand = "dump"\n'
    assert load_task(make_task(tmp_path, toml)).hidden.collect == (Collect("dump", "root", 60.0),)


def test_what_artifacts_exclude_is_not_carried(tmp_path):
    toml = 'artifacts = [{ source = "/app", exclude = ["node_modules", "./out/*.log"] }]\n[verifier]\n'
    task = load_task(make_task(tmp_path, toml + 'environment_mode = "separate"\n'))
    names = ("node_modules", "web/node_modules/a/b", "out/x.log", "src/out.log", "a.py")
    assert [_is_protected(name, task.hidden.protected) for name in names] == [True, True, True, False, False]
    assert load_task(make_task(tmp_path, toml, "shared")).hidden.protected == ()


def test_artifacts_of_a_shared_verifier_are_not_carried(tmp_path):
    hidden = load_task(make_task(tmp_path, 'artifacts = ["/app/out.json"]\n')).hidden
    assert (hidden.graded, hidden.graded_alone) == ((), False)


def test_a_separate_verifier_may_have_an_image_of_its_own(tmp_path):
    directory = make_task(
        tmp_path, '[verifier]\nnetwork_mode = "public"\n[verifier.environment]\ncpus = 3\nworkdir = "/w"\n'
    )
    (directory / "tests/Dockerfile").write_text("FROM scratch\nCOPY . /tests/\n")
    task = load_task(directory)
    own = task.hidden.own
    assert (own.context, own.image, own.workdir, own.holds_tests) == (directory / "tests", None, "/w", True)
    spec = verifier_spec(task, "theirs")
    assert (spec.image, spec.workdir, spec.limits.cpus, spec.limits.network) == ("theirs", "/w", 3.0, True)

    toml = '[verifier.environment]\ndocker_image = "judge:1"\n'
    directory = make_task(tmp_path, toml, "other")
    (directory / "tests/test.sh").unlink()  # it is in the image
    assert load_task(directory).hidden.own.image == "judge:1"

    toml = '[environment]\ndocker_image = "app:1"\nworkdir = "/app"\n[verifier.environment]\nmemory_mb = 99\n'
    own = load_task(make_task(tmp_path, toml, "third")).hidden.own
    assert (own.image, own.workdir, own.limits.memory_mb, own.holds_tests) == ("app:1", "/app", 99, False)


def test_paths_that_are_graded_are_named_by_the_task(tmp_path):
    task = load_task(make_task(tmp_path, '[metadata]\ngraded_paths = ["/etc/nginx", ".git"]\n'))
    assert (task.hidden.graded, task.hidden.graded_alone) == (("/etc/nginx", ".git"), False)


@pytest.mark.parametrize(
    "artifact, said",
    [
        ('{ source = "/x", service = "db" }', "service 'db': several containers aren't supported"),
        ('"/logs/verifier/reward.txt"', "'/logs/verifier/reward.txt' can't be judged"),
        ('"/app/../etc"', "'/app/../etc' must be a path without '..'"),
        ('"/"', "'/' can't be judged"),
    ],
)
def test_artifacts_that_a_separate_verifier_can_not_be_given_are_refused(tmp_path, artifact, said):
    load_task(make_task(tmp_path, f"artifacts = [{artifact}]\n", "shared"))
    toml = f'artifacts = [{artifact}]\n[verifier]\nenvironment_mode = "separate"\n'
    with pytest.raises(BadTask, match=re.escape(said)):
        load_task(make_task(tmp_path, toml))
