"""Reading Harbor task directories: what is understood, what is refused, and what the refusal says."""

import re
from pathlib import Path

import pytest

import envs.swe
from envs.judging.specs import agent_spec, verifier_spec
from envs.tasks.harbor import load_task, load_tasks
from envs.types import BadTask
from sandboxes.base import Limits

STARTER = Path(envs.swe.__file__).parent / "starter"


def make_task(root: Path, toml: str = "", name: str = "sample") -> Path:
    directory = root / name
    for folder in ("environment", "tests", "solution"):
        (directory / folder).mkdir(parents=True)
    (directory / "task.toml").write_text(toml)
    (directory / "instruction.md").write_text("Do it.\n")
    (directory / "environment/Dockerfile").write_text("FROM scratch\n")
    (directory / "tests/test.sh").write_text("echo 1 > /logs/verifier/reward.txt\n")
    (directory / "solution/solve.sh").write_text("true\n")
    return directory


def test_an_empty_task_toml_gives_the_defaults(tmp_path):
    task = load_task(make_task(tmp_path))
    assert (task.id, task.instruction, task.image, task.workdir, task.user) == ("sample", "Do it.", None, None, None)
    assert task.context == tmp_path / "sample/environment"
    assert task.hidden.tests == tmp_path / "sample/tests"
    assert task.hidden.solution == tmp_path / "sample/solution"
    assert (task.hidden.timeout_s, task.timeout_s) == (600.0, None)
    assert task.limits == Limits()


def test_every_field_finds_its_place(tmp_path):
    task = load_task(
        make_task(
            tmp_path,
            """
            schema_version = "1.3"
            [task]
            name = "org/sample"
            [metadata]
            difficulty = "hard"
            category = "shell"
            tags = ["a", "b"]
            protected_paths = ["tests/*"]
            [agent]
            timeout_sec = 30
            user = 1000
            [verifier]
            timeout_sec = 12.5
            user = "verifier"
            network_mode = "public"
            env = { KEY = "${SECRET}", OTHER = "x-${MISSING:-y}" }
            [solution]
            env = { A = "b" }
            [environment]
            docker_image = "busybox"
            cpus = 2
            memory_mb = 2048
            storage_mb = 100
            workdir = "/src"
            env = { LANG = "C" }
            network_mode = "no-network"
            """,
        ),
        variables={"SECRET": "s"},
    )
    assert (task.image, task.workdir, task.user, task.timeout_s) == ("busybox", "/src", "1000", 30.0)
    assert task.limits == Limits(cpus=2.0, memory_mb=2048, disk_mb=100, network=False)
    assert (task.hidden.timeout_s, task.hidden.user, task.hidden.network) == (12.5, "verifier", True)
    assert task.hidden.test_env == {"KEY": "s", "OTHER": "x-y"}
    assert task.hidden.protected == ("tests/*",)
    assert (task.hidden.solution_env, task.env) == ({"A": "b"}, {"LANG": "C"})
    assert task.tags == ("a", "b", "hard", "shell")
    assert task.metadata["task"] == {"name": "org/sample"}


def test_old_field_names_are_read(tmp_path):
    toml = 'version = "1.0"\n[environment]\nmemory = "2G"\nstorage = "512M"\nallow_internet = true\n'
    limits = load_task(make_task(tmp_path, toml)).limits
    assert (limits.memory_mb, limits.disk_mb, limits.network) == (2048, 512, True)


def test_protected_paths_are_read_by_the_name_that_version_0_1_wrote(tmp_path):
    task = load_task(make_task(tmp_path, '[metadata]\nterritory = ["tests/*", "tox.ini"]\n'))
    assert task.hidden.protected == ("tests/*", "tox.ini")
    with pytest.raises(BadTask, match=r"\[metadata\] protected_paths must be a list of strings"):
        load_task(make_task(tmp_path, "[metadata]\nterritory = [1]\n", "other"))


def test_the_new_network_field_beats_the_old_one(tmp_path):
    toml = '[environment]\nallow_internet = true\nnetwork_mode = "no-network"\n'
    assert not load_task(make_task(tmp_path, toml)).limits.network


def test_the_agent_may_have_a_network_of_its_own(tmp_path):
    task = load_task(make_task(tmp_path, '[agent]\nnetwork_mode = "public"\n'))
    assert (task.limits.network, task.hidden.network) == (True, False)


def test_hosts_may_be_allowed_for_all_phases_or_for_one(tmp_path):
    toml = '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["packages.example", "*.files.example"]\n'
    task = load_task(make_task(tmp_path, toml + '[verifier]\nnetwork_mode = "public"\n'))
    assert (task.limits.network, task.limits.allowed_hosts) == (False, ("packages.example", "*.files.example"))
    assert agent_spec(task, "i").limits.allowed_hosts == ("packages.example", "*.files.example")
    limits = verifier_spec(task, "i").limits
    assert (limits.network, limits.allowed_hosts) == (True, ())

    toml = '[agent]\nnetwork_mode = "public"\n[verifier]\nnetwork_mode = "allowlist"\nallowed_hosts = ["x.org:8080"]\n'
    task = load_task(make_task(tmp_path, toml, "other"))
    assert (task.limits.network, task.limits.allowed_hosts) == (True, ())
    limits = verifier_spec(task, "i").limits
    assert (limits.network, limits.allowed_hosts) == (False, ("x.org:8080",))


@pytest.mark.parametrize(
    "toml, said",
    [
        ("[[", "task.toml is not valid TOML"),
        ('schema_version = "2.0"', "schema_version '2.0' isn't supported; 1.x is"),
        ("[environment]\ncpu = 1", "[environment] cpu is not a field that is known here; correct or remove it"),
        ("[environment]\ncpus = 0", "[environment] cpus: Input should be greater than 0, not 0"),
        ('[environment]\nmemory_mb = "lots"', "[environment] memory_mb: 'lots' is not a size"),
        ('[environment]\nmemory = "1G"\nmemory_mb = 5', "memory and memory_mb contradict each other; keep memory_mb"),
        ('[environment]\nworkdir = "app"', "[environment] workdir"),
        ("[environment]\ngpus = 1", "gpus: GPUs aren't supported; set gpus = 0"),
        ('[environment]\nos = "windows"', "os = 'windows' isn't supported"),
        ('[environment]\nnetwork_mode = "bridge"', "[environment] network_mode: 'bridge' isn't supported"),
        ('[agent]\nallowed_hosts = ["x.org"]', 'allowed_hosts need network_mode = "allowlist"'),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["http://x"]', "'http://x' is no host"),
        ('[environment]\nskills_dir = "/s"', "skills_dir: skills aren't supported"),
        ('[environment.healthcheck]\ncommand = "x"', "healthcheck: health checks aren't supported"),
        ('[[environment.mcp_servers]]\nname = "x"', "mcp_servers: MCP servers aren't supported"),
        ("[verifier]\ntimeout_sec = -1", "[verifier] timeout_sec: Input should be greater than 0, not -1"),
        ('[verifier]\ntimeout_sec = "10"', "[verifier] timeout_sec: Input should be a valid number, not '10'"),
        ('[verifier]\nenvironment_mode = "separate"', "a separate verifier environment isn't supported"),
        ("[verifier.environment]\ncpus = 1", "a separate verifier environment isn't supported"),
        ('[[verifier.collect]]\ncommand = "x"', "[[verifier.collect]] isn't supported"),
        ("[verifier]\nenv = { A = 1 }", "[verifier.env] A: Input should be a valid string, not 1"),
        ('[verifier]\nenv = { A = "${NOPE}" }', "[verifier] env.A needs the variable NOPE"),
        ('[[steps]]\nname = "one"', "[[steps]] aren't supported"),
        ('[metadata]\ntags = "x"', "[metadata] tags must be a list"),
        ("[agent]\nuser = 1.5", "[agent] user"),
    ],
)
def test_a_bad_field_is_named(tmp_path, toml, said):
    with pytest.raises(BadTask, match=re.escape(said)) as caught:
        load_task(make_task(tmp_path, toml))
    assert str(caught.value).startswith("task sample: task.toml")


@pytest.mark.parametrize(
    "path, said",
    [
        ("task.toml", "task.toml is missing; a task directory holds task.toml, instruction.md"),
        ("instruction.md", "instruction.md is missing"),
        ("tests/test.sh", "tests/test.sh is missing"),
        ("environment/Dockerfile", "add environment/Dockerfile, or name an image"),
        ("solution/solve.sh", "solution/ has no solve.sh"),
    ],
)
def test_a_missing_file_is_named(tmp_path, path, said):
    directory = make_task(tmp_path)
    (directory / path).unlink()
    with pytest.raises(BadTask, match=re.escape(said)):
        load_task(directory)


@pytest.mark.parametrize(
    "path", ["environment/docker-compose.yaml", "trajectory.json", "tests/Dockerfile", "steps/one/instruction.md"]
)
def test_files_that_would_change_the_task_are_refused(tmp_path, path):
    directory = make_task(tmp_path)
    (directory / path).parent.mkdir(parents=True, exist_ok=True)
    (directory / path).write_text("")
    with pytest.raises(BadTask, match="supported"):
        load_task(directory)


def test_an_instruction_must_say_something_in_utf8(tmp_path):
    directory = make_task(tmp_path)
    (directory / "instruction.md").write_text(" \n")
    with pytest.raises(BadTask, match=r"instruction.md is empty"):
        load_task(directory)
    (directory / "instruction.md").write_bytes(b"caf\xe9")
    with pytest.raises(BadTask, match=r"instruction.md is not UTF-8"):
        load_task(directory)


def test_a_task_without_a_solution_can_be_read(tmp_path):
    directory = make_task(tmp_path)
    (directory / "solution/solve.sh").unlink()
    (directory / "solution").rmdir()
    assert load_task(directory).hidden.solution is None


def test_an_image_alone_is_enough(tmp_path):
    directory = make_task(tmp_path, '[environment]\ndocker_image = "busybox"\n')
    (directory / "environment/Dockerfile").unlink()
    assert load_task(directory).context is None


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


def test_all_bad_tasks_are_listed_at_once(tmp_path):
    make_task(tmp_path, name="good")
    make_task(tmp_path, "[agent]\ntimeout_sec = 0", name="first")
    make_task(tmp_path / "deep", "[[", name="second")
    with pytest.raises(BadTask) as caught:
        load_tasks(tmp_path)
    assert "2 tasks in" in str(caught.value)
    assert "- task first: task.toml: [agent] timeout_sec" in str(caught.value)
    assert "- task second: task.toml is not valid TOML" in str(caught.value)


def test_two_tasks_of_one_name_are_refused(tmp_path):
    make_task(tmp_path / "a", name="same")
    make_task(tmp_path / "b", name="same")
    with pytest.raises(BadTask, match="two directories have this name"):
        load_tasks(tmp_path)


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
