"""Reading Harbor task directories: what is understood, what is refused, and what the refusal says."""

import os
import re
import signal
from pathlib import Path

import pytest
from harbor_samples import make_task

import envs.swe
from envs.tasks.adapters.harbor_folders import load as load_published
from envs.tasks.harbor import find_task, load_task, load_tasks
from envs.types import BadTask, BadTasks

STARTER = Path(envs.swe.__file__).parent / "starter"


@pytest.mark.parametrize(
    "path, said",
    [
        ("task.toml", "task.toml is missing; a task directory holds task.toml, instruction.md"),
        ("instruction.md", "instruction.md is missing"),
        ("tests/test.sh", "tests/test.sh is missing"),
        ("environment/Dockerfile", "add environment/Dockerfile, or name an image"),
    ],
)
def test_a_missing_file_is_named(tmp_path, path, said):
    directory = make_task(tmp_path)
    (directory / path).unlink()
    with pytest.raises(BadTask, match=re.escape(said)):
        load_task(directory)


def test_a_prior_conversation_is_refused(tmp_path):
    directory = make_task(tmp_path)
    (directory / "trajectory.json").write_text("{}")
    with pytest.raises(BadTask, match=r"trajectory\.json: a prior conversation isn't supported"):
        load_task(directory)


def test_files_that_are_not_followed_are_named(tmp_path, caplog):
    directory = make_task(tmp_path)
    for path in ("tests/Dockerfile", "tests/.harborignore"):
        (directory / path).write_text("")
    (directory / "solution/solve.sh").rename(directory / "solution/fix.sh")
    assert load_task(directory).hidden.solution is None
    for what in ("tests/Dockerfile is not built", ".harborignore is not followed, so", "solution/ has no solve.sh"):
        assert f"task sample: {what}" in caplog.text


def test_an_empty_folder_for_a_solution_is_no_remark(tmp_path, caplog):
    directory = make_task(tmp_path)
    (directory / "solution/solve.sh").unlink()
    assert load_task(directory).hidden.solution is None
    assert not caplog.text


def test_an_instruction_must_say_something_in_utf8(tmp_path):
    directory = make_task(tmp_path)
    (directory / "instruction.md").write_text(" \n")
    with pytest.raises(BadTask, match=r"instruction.md is empty"):
        load_task(directory)
    (directory / "instruction.md").write_bytes(b"caf\xe9")
    with pytest.raises(BadTask, match=r"instruction.md is not UTF-8"):
        load_task(directory)
    (directory / "instruction.md").unlink()
    (directory / "instruction.md").mkdir()
    with pytest.raises(BadTask, match=r"instruction.md is no file"):
        load_task(directory)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    folder = make_task(tmp_path)
    for name in ("task.toml", "instruction.md"):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert not load_task(folder).instruction.startswith("\ufeff")


@pytest.mark.parametrize("name", ["tests/test.sh", "solution/solve.sh"])
def test_a_script_with_the_line_ends_of_windows_is_refused(tmp_path, name):
    folder = make_task(tmp_path)
    (folder / name).write_bytes(b"#!/bin/bash\r\nset -e\r\n")
    with pytest.raises(BadTask, match=rf"{name} has Windows' line ends"):
        load_task(folder)


def test_a_task_without_a_solution_can_be_read(tmp_path):
    directory = make_task(tmp_path)
    (directory / "solution/solve.sh").unlink()
    (directory / "solution").rmdir()
    assert load_task(directory).hidden.solution is None


def test_an_image_alone_is_enough(tmp_path):
    directory = make_task(tmp_path, '[environment]\ndocker_image = "busybox"\n')
    (directory / "environment/Dockerfile").write_text("\n# the image is named in task.toml\n")
    assert (load_task(directory).image, load_task(directory).context) == ("busybox", None)
    (directory / "environment/Dockerfile").unlink()
    assert load_task(directory).context is None


def test_files_without_a_dockerfile_are_for_the_image_that_is_named(tmp_path):
    directory = make_task(tmp_path, '[environment]\ndocker_image = "busybox"\n')
    (directory / "environment/Dockerfile").rename(directory / "environment/data")
    task = load_task(directory)
    assert (task.image, task.context) == ("busybox", directory / "environment")
    (directory / "environment/docker-compose.yaml").write_text("services: {main: {}}\n")
    assert load_task(directory).context is None  # as Harbor
    (directory / "environment/docker-compose.yaml").unlink()
    (directory / "task.toml").write_text('[environment]\ndocker_image = "busybox"\nworkdir = "/srv"\n')
    with pytest.raises(BadTask, match=r"take workdir out.*in place of docker_image: FROM busybox, and COPY \. /srv"):
        load_task(directory)


def test_a_time_without_end_is_a_day(tmp_path):
    task = load_task(make_task(tmp_path, "[agent]\ntimeout_sec = inf\n[verifier]\ntimeout_sec = 1e9\n"))
    assert (task.timeout_s, task.hidden.timeout_s) == (86_400, 86_400)


@pytest.mark.parametrize("seconds", ["nan", "0", "-1", "-inf"])
def test_a_time_in_which_nothing_can_be_done_is_refused(tmp_path, seconds):
    with pytest.raises(BadTask, match=r"\[verifier\] timeout_sec: .*greater than 0"):
        load_task(make_task(tmp_path, f"[verifier]\ntimeout_sec = {seconds}\n"))


def test_the_digest_tells_every_change(tmp_path):
    directory = make_task(tmp_path)
    seen = {load_task(directory).digest}
    (directory / "tests/test.sh").chmod(0o755)
    seen.add(load_task(directory).digest)
    (directory / "tests/extra").write_text("x")
    seen.add(load_task(directory).digest)
    (directory / "tests/extra").write_text("y")
    seen.add(load_task(directory).digest)
    (directory / "tests/__pycache__").mkdir()
    (directory / "tests/__pycache__/x.pyc").write_text("z")
    assert load_task(directory).digest in seen
    assert len(seen) == 4


def test_all_bad_tasks_are_listed_at_once_and_the_others_can_be_used(tmp_path):
    make_task(tmp_path, name="good")
    make_task(tmp_path, "[agent]\ntimeout_sec = 0", name="first")
    make_task(tmp_path / "deep", "[[", name="second")
    with pytest.raises(BadTasks) as caught:
        load_tasks(tmp_path)
    assert [task.id for task in caught.value.usable] == ["good"]
    assert "2 tasks in" in str(caught.value)
    assert "- task first: task.toml: [agent] timeout_sec" in str(caught.value)
    assert "- task second: task.toml is not valid TOML" in str(caught.value)


def test_two_tasks_of_one_name_are_refused(tmp_path):
    make_task(tmp_path / "a", name="same")
    make_task(tmp_path / "b", name="same")
    with pytest.raises(BadTask, match="two directories have this name"):
        load_tasks(tmp_path)


def test_what_is_left_out_is_said_once_for_all_tasks(tmp_path, caplog):
    for number in range(7):
        text = 'extra = 1\n[environment]\ncpu = 1\nenv = { KEY = "${KEY}" }\n'
        make_task(tmp_path, text, name=f"task-{number}")
    load_tasks(tmp_path)
    shown = "task-0, task-1, task-2, task-3, task-4 and 2 more"
    assert f"tasks {shown}: [environment] cpu is not a field that is known here; it is left out" in caplog.text
    assert len(caplog.records) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("FROM x\nRUNN y\n", "line 2: there is no instruction RUNN"),
        ("RUN y\n", "it has no FROM"),
        ("FROM x\nRUN <<EOF\ny\n", "line 2: the here-document EOF has no end"),
    ],
)
@pytest.mark.parametrize("folder", ["environment", "tests"])
def test_a_dockerfile_that_no_builder_reads_is_refused_with_its_line(tmp_path, folder, text, said):
    directory = make_task(tmp_path, '[verifier]\nenvironment_mode = "separate"\n')
    (directory / folder / "Dockerfile").write_text(text)
    with pytest.raises(BadTask, match=re.escape(f"task sample: {folder}/Dockerfile: {said}")):
        load_task(directory)


def test_a_dockerfile_without_a_working_directory_is_told_of_once_for_all_tasks(tmp_path, caplog):
    for name, text, toml in (
        ("a", "FROM x\n", ""),
        ("b", "FROM x\nRUN y\n", ""),
        ("c", "FROM x\nWORKDIR /app\n", ""),
        ("d", "FROM x\n", '[environment]\nworkdir = "/app"\n'),
    ):
        (make_task(tmp_path, toml, name=name) / "environment/Dockerfile").write_text(text)
    load_tasks(tmp_path)
    (record,) = caplog.records
    assert record.getMessage().startswith("tasks a, b: environment/Dockerfile has no WORKDIR")
    assert record.getMessage().endswith("name the source tree")


def test_an_empty_folder_says_what_a_task_looks_like(tmp_path):
    with pytest.raises(BadTask, match=r"holds no task; a task directory holds task\.toml"):
        load_tasks(tmp_path)
    with pytest.raises(BadTask, match="is not a directory"):
        load_tasks(tmp_path / "nowhere")


def test_a_task_directory_is_a_folder_of_one_task(tmp_path):
    assert [task.id for task in load_tasks(make_task(tmp_path))] == ["sample"]


def test_the_starter_pack_has_its_three_bands():
    tasks = load_tasks(STARTER)
    bands = [task.metadata["band"] for task in tasks]
    assert {band: bands.count(band) for band in bands} == {"terminal": 31, "bugfix": 12, "multifile": 7}
    assert len({task.instruction for task in tasks}) == len(tasks)
    assert all(task.hidden.solution for task in tasks)
    assert not any(task.limits.network for task in tasks)


@pytest.mark.parametrize("bands", [{"terminal"}, {"bugfix", "multifile"}])
def test_tasks_of_a_band_share_one_way_of_judging(bands):
    tasks = [task for task in load_tasks(STARTER) if task.metadata["band"] in bands]
    assert len({(task.hidden.tests / "test.sh").read_bytes() for task in tasks}) == 1


def test_terminal_instructions_are_short_and_their_kinds_are_listed():
    readme = (STARTER / "README.md").read_text()
    trained, _, held_out = readme.partition("kept for evaluation")
    for task in load_tasks(STARTER):
        if task.metadata["band"] == "terminal":
            assert len(task.instruction.split()) <= 20
            assert f"`{task.metadata['kind']}`" in (held_out if task.metadata.get("held_out") else trained)


def test_a_folder_of_a_task_may_be_a_link_to_one_that_tasks_share(tmp_path):
    directory, shared = make_task(tmp_path), tmp_path / "shared"
    (directory / "environment").rename(shared)
    (directory / "environment").symlink_to(shared)
    (before,) = load_tasks(tmp_path)
    assert before.context == directory / "environment"
    (shared / "more").write_text("1")
    assert load_tasks(tmp_path)[0].digest != before.digest
    with pytest.raises(BadTask, match=r"environment is a link to .*/shared, outside of .*give a folder around both"):
        load_task(directory)  # which nothing is known to be around


@pytest.fixture
def ten_seconds():
    """End a test that takes longer, also within a call of the system."""

    def over(*_: object) -> None:
        raise AssertionError("it takes longer")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("ten_seconds")
@pytest.mark.parametrize("path", ["instruction.md", "tests/reward.toml"])
def test_a_named_pipe_in_place_of_a_file_is_not_read(tmp_path, path):
    file = make_task(tmp_path) / path
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    if path == "tests/reward.toml":
        assert not load_tasks(tmp_path)[0].hidden.asks_judge
    else:
        with pytest.raises(BadTasks, match="task sample: "):
            load_tasks(tmp_path)


@pytest.mark.usefixtures("ten_seconds")
@pytest.mark.parametrize("read", [load_tasks, lambda root: load_published(root, root.parent / "out")])
def test_links_in_a_circle_are_followed_once(tmp_path, read):
    root = tmp_path / "tasks"
    for here, there in (("a", "b"), ("b", "a")):
        make_task(root / here, name=f"task-{here}")
        for number in range(3):
            (root / here / f"link-{number}").symlink_to(root / there)
    assert sorted(task.id for task in read(root)) == ["task-a", "task-b"]


def test_a_file_that_can_not_be_read_costs_its_task_alone(tmp_path):
    make_task(tmp_path, name="sound")
    (make_task(tmp_path, name="odd") / "environment/x").symlink_to("/proc/self/mem")
    with pytest.raises(BadTasks, match="- task odd: one of its files can't be read: Input/output error") as caught:
        load_tasks(tmp_path)
    assert [task.id for task in caught.value.usable] == ["sound"]


def test_one_task_is_found_by_its_name_whatever_the_others_are(tmp_path):
    make_task(tmp_path / "below", name="wanted")
    make_task(tmp_path, "[environment]\ngpus = 1\n", name="bad")
    assert find_task(tmp_path, "wanted").id == find_task(tmp_path / "below/wanted", "wanted").id == "wanted"
    for name, said in (("wantd", "did you mean wanted?"), ("bad", "gpus")):
        with pytest.raises(BadTask, match=said):
            find_task(tmp_path, name)
    with pytest.raises(BadTask, match="holds no task"):
        find_task(tmp_path / "nowhere", "wanted")
