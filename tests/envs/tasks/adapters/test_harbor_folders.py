"""Published Harbor tasks, in folders or tarballs, become task directories of our own."""

import os
import tarfile
from pathlib import Path

import pytest

from envs.tasks.adapters.harbor_folders import load
from envs.types import BadTask, BadTasks

OF_NVIDIA = '[environment]\ndocker_image = "registry.example/private:1"\ncpus = 2\n'


def published(folder: Path, toml: str | None = "", image: str = "FROM scratch\nWORKDIR /app\n") -> Path:
    """A task directory as a set has it."""
    for path, text in {
        "instruction.md": "Do it.",
        "environment/Dockerfile": image,
        "environment/files/data.txt": "1",
        "tests/test.sh": "true",
        **({} if toml is None else {"task.toml": toml}),
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def packed(tarball: Path, folder: Path) -> Path:
    tarball.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(tarball, "w:gz") as tar:
        tar.add(folder, folder.name)
    return tarball


def test_tasks_are_copied_from_wherever_they_are_in_a_folder(tmp_path):
    published(tmp_path / "repo/one")
    published(tmp_path / "repo/deep/two")
    assert {task.id for task in load(tmp_path / "repo", tmp_path / "out")} == {"one", "two"}
    assert (tmp_path / "out/two/environment/files/data.txt").is_file()


def test_tasks_are_unpacked_from_the_tarballs_of_a_folder_or_from_one(tmp_path):
    tarball = packed(tmp_path / "set/skill_based/easy.tar.gz", published(tmp_path / "easy/one").parent)
    assert [task.id for task in load(tmp_path / "set", tmp_path / "out")] == ["one"]
    assert [task.id for task in load(tarball, tmp_path / "again")] == ["one"]


def test_an_interrupted_tarball_is_named_with_the_remedy(tmp_path):
    tarball = packed(tmp_path / "easy.tar.gz", published(tmp_path / "easy/one").parent)
    tarball.write_bytes(tarball.read_bytes()[:-40])
    published(tmp_path / "set/two")
    tarball.rename(tmp_path / "set/easy.tar.gz")
    with pytest.raises(BadTasks, match=r"- set/easy\.tar\.gz: it can't be unpacked: .* get it again") as error:
        load(tmp_path / "set", tmp_path / "out")
    assert [task.id for task in error.value.usable] == ["two"]


def test_what_is_in_a_task_is_its_own(tmp_path):
    task = published(tmp_path / "set/one")
    (task / "environment/data.tar.gz").write_text("no tarball")
    published(task / "tests/two")
    steps = published(tmp_path / "set/stepwise", '[[steps]]\nname = "first"\n[[steps]]\nname = "second"\n')
    (steps / "tests").rename(steps / "environment/tests")
    (steps / "instruction.md").unlink()
    for name in ("first", "second"):
        published(steps / "steps" / name)
    assert [found.id for found in load(tmp_path / "set", tmp_path / "out")] == ["one", "stepwise"]


def test_files_that_tasks_share_by_links_come_with_each(tmp_path):
    shared = published(tmp_path / "set/shared") / "tests"
    (shared.parent / "task.toml").unlink()
    (shared.parent / "instruction.md").unlink()
    folder, file = published(tmp_path / "set/folder"), published(tmp_path / "set/file")
    (folder / "tests").rename(folder / "environment/mine")
    (folder / "tests").symlink_to("../shared/tests")
    (folder / "environment/inner").symlink_to("Dockerfile")
    (file / "tests/test.sh").unlink()
    (file / "tests/test.sh").symlink_to("../../shared/tests/test.sh")
    for source in (tmp_path / "set", packed(tmp_path / "set.tar.gz", tmp_path / "set")):
        out = tmp_path / f"{source.name}.out"
        assert {task.id for task in load(source, out)} == {"file", "folder"}
        assert (out / "folder/tests/test.sh").read_text() == (out / "file/tests/test.sh").read_text() == "true"
        assert (out / "folder/environment/inner").is_symlink()


def test_a_pipe_in_a_task_costs_that_task_alone(tmp_path):
    os.mkfifo(published(tmp_path / "set/one") / "environment/pipe")
    published(tmp_path / "set/two")
    with pytest.raises(BadTasks, match=r"- set/one: it can't be copied: .* is a named pipe; remove that file") as error:
        load(tmp_path / "set", tmp_path / "out")
    assert [task.id for task in error.value.usable] == ["two"]


def test_links_in_a_circle_end(tmp_path):
    published(tmp_path / "set/deep/one")
    (tmp_path / "set/deep/again").symlink_to("..")
    assert [task.id for task in load(tmp_path / "set", tmp_path / "out")] == ["one"]


def test_a_link_to_itself_in_a_task_is_copied_as_it_is(tmp_path):
    (published(tmp_path / "set/one") / "tests/self").symlink_to("self")
    assert [task.id for task in load(tmp_path / "set", tmp_path / "out")] == ["one"]
    assert (tmp_path / "out/one/tests/self").is_symlink()


def test_a_tarball_can_not_write_elsewhere(tmp_path):
    with tarfile.open(tmp_path / "bad.tar.gz", "w:gz") as tar:
        tar.add(published(tmp_path / "one"), "../../outside")
    with pytest.raises(BadTask, match="can't be unpacked"):
        load(tmp_path / "bad.tar.gz", tmp_path / "out")
    assert not (tmp_path / "outside").exists()


def test_a_publishers_own_image_gives_way_to_the_dockerfile_beside_it(tmp_path):
    published(tmp_path / "set/one", OF_NVIDIA)
    (task,) = load(tmp_path / "set", tmp_path / "out")
    assert (task.image, task.context, task.limits.cpus) == (None, tmp_path / "out/one/environment", 2)


def test_a_task_without_settings_has_the_usual_ones(tmp_path):
    published(tmp_path / "set/one", toml=None)
    (task,) = load(tmp_path / "set", tmp_path / "out")
    assert task.id == "one"


def test_all_unusable_tasks_are_listed_beside_the_others(tmp_path):
    published(tmp_path / "set/good")
    published(tmp_path / "set/bad", "[environment]\ngpus = 1\n")
    published(tmp_path / "set/worse", "no toml at all")
    published(tmp_path / "set/two", OF_NVIDIA)
    published(tmp_path / "set/more/two")
    with pytest.raises(BadTasks) as error:
        load(tmp_path / "set", tmp_path / "out")
    assert [task.id for task in error.value.usable] == ["good"]
    assert [line.split(":")[0] for line in str(error.value).splitlines()[1:]] == [
        "- set/bad",
        "- set/two",
        "- set/worse",
    ]
