"""`tasks shell`: a task's sandbox, entered by a user."""

import io
import os
import tarfile
from contextlib import contextmanager
from dataclasses import replace

import orjson
import pytest
from harbor_samples import make_task
from samples import rollout
from samples import task as sample

from envs.judging.changes import Changes
from envs.judging.saved_changes import pack_changes
from envs.records.atif import to_atif
from envs.swe.tasks import main
from sandboxes.local import LocalBackend

STEPS = """
[[steps]]
name = "one"
[[steps]]
name = "two"
"""


@contextmanager
def stdin(path):
    """Have a file as standard input."""
    before = os.dup(0)
    with path.open() as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.fixture
def shell(tmp_path, capfd):
    """Runs a script in the shell. Returns the status, stdout and stderr."""

    def run(script, *arguments):
        (tmp_path / "script").write_text(script)
        with stdin(tmp_path / "script"):
            status = main(["shell", *map(str, arguments)])
        return status, *capfd.readouterr()

    return run


@pytest.fixture
def on_this_machine(monkeypatch):
    monkeypatch.setattr("envs.swe.shell.load_backend", lambda name, **options: LocalBackend())


def save(folder, of="create-greeting", **files):
    """Save a rollout, `r-1`, whose agent has added files. Returns its name for the command."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    changes = Changes(made.getvalue(), added=tuple(files), withheld=("conftest.py",))
    work = (pack_changes(changes, 10**6),) if files else ()
    (folder / "rollouts.jsonl").write_bytes(orjson.dumps(to_atif(replace(rollout(of=sample(of)), work=work))) + b"\n")
    return folder / "r-1"


@pytest.mark.docker
def test_the_work_of_a_rollout_is_gone_on_with_and_judged(shell, tmp_path, base_image):
    place = save(tmp_path, greeting="hello", sum="1")
    script = "pwd; id -un; cat greeting; printf '%s world' $(cat greeting) > greeting.txt; exit 3"
    options = ["starter", "create-greeting", "--rollout", place, "--judge", f"--env.base_image={base_image}"]
    status, out, said = shell(script, *options)
    assert (status, out.startswith("/app\nroot\nhelloreward 1: ")) == (0, True)
    assert "test_state.py::State::test_greeting_holds_the_line  passed" in out
    assert "with the work of rollout r-1: 2 added, 0 changed, 0 deleted; 1 path of its own stayed" in said
    status, out, _ = shell("echo hi > greeting.txt", "starter", "create-greeting", "--judge", *options[-1:])
    assert (status, out.startswith("reward 0: "), "  failed" in out) == (1, True, True)


@pytest.mark.usefixtures("on_this_machine")
def test_the_shells_status_is_the_commands(shell, tmp_path):
    make_task(tmp_path / "tasks")
    assert shell("echo out; echo err >&2; exit 7", tmp_path / "tasks", "sample")[:2] == (7, "out\n")


@pytest.mark.usefixtures("on_this_machine")
def test_of_several_steps_the_first_is_set_up(shell, tmp_path):
    task = make_task(tmp_path / "tasks", STEPS)
    for name in ("one", "two"):
        (task / "steps" / name / "workdir").mkdir(parents=True)
        (task / "steps" / name / "workdir" / name).touch()
        (task / "steps" / name / "instruction.md").write_text("Do it.")
    status, out, said = shell("ls", tmp_path / "tasks", "sample")
    assert (status, out) == (0, "one\n")
    assert "task sample, at the first of its 2 steps, one: a shell in " in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["create-greting"], "holds no task 'create-greting'; did you mean create-greeting?"),
        (["create-greeting", "--rollout", "RUN/r-2"], "holds no rollout r-2; did you mean r-1?"),
        (["create-greeting", "--rollout", "RUN/none/r-1"], "none holds no rollouts; give --rollout RUN/ID"),
        (["first-line", "--rollout", "RUN/r-1"], "rollout r-1 is of task create-greeting, not first-line"),
        (["create-greeting", "--rollout", "RUN/r-1"], "the run kept nothing of what the agent of rollout r-1 made"),
        (["create-greeting", "--env.sandbox", "local"], "--env.sandbox local: nothing is isolated there"),
        (["create-greeting", "--env.sandbx=local"], "--env.sandbx: there is no such option"),
    ],
)
def test_mistakes_are_said_in_a_sentence(shell, tmp_path, options, said):
    save(tmp_path)
    status, out, errors = shell("", "starter", *(word.replace("RUN", str(tmp_path)) for word in options))
    assert (status, out) == (2, "")
    assert said in errors and "Traceback" not in errors
