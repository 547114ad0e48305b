"""Terminal-bench 1 directories become tasks."""

import subprocess

import pytest

from envs.checking.check import check_tasks
from envs.tasks.adapters import terminal_bench
from envs.tasks.adapters.terminal_bench import load
from envs.types import BadTask, Service

FILES = {
    "task.yaml": (
        "instruction: |-\n  Write hello into /app/hello.txt.\ndifficulty: easy\ntags: [files]\nparser_name: pytest\n"
    ),
    "Dockerfile": "FROM ghcr.io/laude-institute/t-bench/ubuntu-24-04:latest\nWORKDIR /app\nCOPY data.txt /app/\n",
    "data.txt": "1\n",
    "docker-compose.yaml": (
        "services:\n  client:\n    build:\n      dockerfile: Dockerfile\n"
        "    container_name: ${T_BENCH_TASK_DOCKER_CLIENT_CONTAINER_NAME}\n    command: [sh, -c, sleep infinity]\n"
    ),
    "run-tests.sh": "#!/bin/bash\npython3 -m pytest $TEST_DIR/test_outputs.py -rA\n",
    "solution.sh": "#!/bin/bash\necho hello > hello.txt\n",
    "tests/test_outputs.py": (
        "from pathlib import Path\n\n"
        "def test_hello():\n    assert Path('/app/hello.txt').read_text().strip() == 'hello'\n"
    ),
}


def folder(tmp_path, **changes):
    root = tmp_path / "hello-file"
    for path, text in {**FILES, **changes}.items():
        if text is not None:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return root


@pytest.mark.docker
async def test_reference_solves_and_doing_nothing_does_not(docker_backend, tmp_path):
    commands = "- command: echo hello > hello.txt\n  min_timeout_sec: 1\n"
    tasks = load(folder(tmp_path), tmp_path / "out")
    tasks += load(folder(tmp_path / "b", **{"solution.sh": None, "solution.yaml": commands}), tmp_path / "other")
    results = await check_tasks(docker_backend, tasks)
    assert [result.problem for result in results] == [None, None]


@pytest.mark.docker
async def test_a_skipped_test_is_no_pass(docker_backend, tmp_path):
    skipping = FILES["tests/test_outputs.py"].replace("    assert", "    import pytest; pytest.skip()\n    assert")
    (result,) = await check_tasks(
        docker_backend, load(folder(tmp_path, **{"tests/test_outputs.py": skipping}), tmp_path / "out")
    )
    assert "an untouched tree is rewarded" in result.problem


@pytest.mark.docker
async def test_swebenchs_result_is_read_between_its_lines(docker_backend, tmp_path):
    run = (
        "grep -qx hello hello.txt && result=PASSED || result=FAILED\necho PASSED\n"
        "echo SWEBench results starts here\necho $result\necho SWEBench results ends here\n"
    )
    made = folder(
        tmp_path,
        **{
            "task.yaml": FILES["task.yaml"].replace("pytest", "swebench"),
            "run-tests.sh": run,
            "tests/test_outputs.py": None,
            "tests/config.json": "{}",
        },
    )
    (result,) = await check_tasks(docker_backend, load(made, tmp_path / "out"))
    assert (result.problem, result.reference, result.nothing) == (None, (1.0,), (0.0,))


@pytest.mark.parametrize(
    ("printed", "result", "passes"), [("", "PASSED", 0), ("", "FAILED", 1), ("PASSED", "FAILED", 1)]
)
def test_what_tested_code_prints_is_no_result(tmp_path, printed, result, passes):
    blocks = [f"SWEBench results starts here\n{said}\nSWEBench results ends here" for said in (printed, result)]
    (tmp_path / "run-tests.sh").write_text("cat <<'END'\n" + "\n".join(blocks) + "\nEND\n")
    command = terminal_bench._PARSERS["swebench"].replace("/tests", str(tmp_path))
    assert subprocess.run(["bash", "-c", command], check=False, capture_output=True).returncode == passes


def test_fields_are_kept_and_the_agent_sees_neither_tests_nor_solution(tmp_path):
    (task,) = load(folder(tmp_path), tmp_path / "out")
    assert task.id == "hello-file"
    assert task.instruction == "Write hello into /app/hello.txt."
    assert (task.timeout_s, task.hidden.timeout_s) == (360, 60)
    assert task.tags == ("files", "terminal-bench", "easy")
    assert sorted(path.name for path in task.context.iterdir()) == ["Dockerfile", "data.txt", "docker-compose.yaml"]


@pytest.mark.parametrize(
    ("given", "text"), [("", "Easy."), ("instruction: hard\n", "Hard."), ("instruction: Do.\n", "Do.")]
)
def test_older_tasks_have_their_instructions_by_keys(tmp_path, given, text):
    keys = "descriptions:\n- {key: base, description: Easy.}\n- {key: hard, description: Hard.}\n"
    (task,) = load(folder(tmp_path, **{"task.yaml": keys + given}), tmp_path / "out")
    assert task.instruction == text


def test_settings_of_the_compose_file_are_kept(tmp_path):
    compose = (
        "services:\n  web:\n    build: {context: ./docker, dockerfile: dev.Dockerfile}\n    command: serve\n"
        "    working_dir: /srv\n    environment: ['TEST_DIR=${T_BENCH_TEST_DIR}', LANG=C.UTF-8]\n"
        "    volumes: ['${T_BENCH_TASK_LOGS_PATH}:/logs', './data:/srv/data:ro']\n"
    )
    made = {"docker/dev.Dockerfile": "FROM x\n", "docker/data/a": "1", "docker-compose.yaml": compose}
    (task,) = load(folder(tmp_path, **made, **{"Dockerfile": None}), tmp_path / "out")
    assert (task.workdir, task.env, task.service) == ("/srv", {"LANG": "C.UTF-8"}, Service(("serve",)))
    assert (task.context / "Dockerfile").read_text() == "FROM x\nCOPY data /srv/data/\n"
    assert (task.context / "data/a").read_text() == "1"


@pytest.mark.docker
async def test_tests_that_the_image_would_have_are_put_there_by_the_verifier_alone(docker_backend, tmp_path):
    lines = (
        "COPY --chmod=644 solution.sh /oracle/\nCOPY tests/make.sh ./\nRUN sh make.sh\n"
        "COPY ./tests/ seen/\nCOPY tests/test_outputs.py .\nCOPY . /all\n"
        "RUN grep made x && [ ! -s seen/test_outputs.py ] && [ ! -s test_outputs.py ] && [ ! -s /oracle/solution.sh ]\n"
    )
    compose = "services: {client: {build: ., volumes: ['./tests:/app/mounted:ro']}}\n"
    run = "for one in seen mounted /all/tests/test_outputs.py test_outputs.py; do pytest $one || exit 1; done\n"
    made = folder(
        tmp_path,
        **{"Dockerfile": FILES["Dockerfile"] + lines, "docker-compose.yaml": compose, "run-tests.sh": run},
        **{"tests/make.sh": "echo made > x\n"},
    )
    (result,) = await check_tasks(docker_backend, load(made, tmp_path / "out"))
    assert result.problem is None


@pytest.mark.parametrize(
    "path, text, message",
    [
        ("task.yaml", "difficulty: easy\n", "instruction is missing"),
        ("task.yaml", "- a\n", "must be a table"),
        ("task.yaml", "a: [\n", "is not YAML"),
        ("task.yaml", "instruction: x\nmade: 2024-13-45\n", "is not YAML: month must be in 1..12"),
        ("task.yaml", "instruction: a\nparser_name: mlebench\n", "'mlebench' isn't supported; pytest and swebench are"),
        ("task.yaml", "instruction: a\nparser_name: [pytest]\n", "isn't supported; pytest and swebench are"),
        ("task.yaml", "instruction: a\nmax_test_timeout_sec: soon\n", "must be a number of seconds"),
        ("task.yaml", "instruction: a\ntags: [1]\n", "tags must be a list"),
        ("run-tests.sh", None, "run-tests.sh is missing"),
        ("docker-compose.yaml", "services: {client: {}, db: {}}\n", "there must be one service"),
        ("docker-compose.yaml", "services: {client: {build: {context: /etc}}}\n", "is out of the task's folder"),
        (
            "docker-compose.yaml",
            "services: {client: {build: {context: .., dockerfile: task/Dockerfile}}}\n",
            "is out of the task's folder",
        ),
        ("docker-compose.yaml", "services: {client: {privileged: true}}\n", "privileged can't be kept"),
    ],
)
def test_a_bad_directory_is_refused_with_file_and_field(tmp_path, path, text, message):
    with pytest.raises(BadTask, match=message):
        load(folder(tmp_path, **{path: text}), tmp_path / "out")


def test_tasks_are_found_in_folders_of_folders_but_not_in_each_other(tmp_path):
    folder(tmp_path / "set/new", **{"task_file/task.yaml": "instruction: of the task\n"})
    folder(tmp_path / "set").rename(tmp_path / "set/other")
    assert [task.id for task in load(tmp_path / "set", tmp_path / "out")] == ["hello-file", "other"]


def test_a_folder_without_tasks_is_refused(tmp_path):
    with pytest.raises(BadTask, match="holds no task"):
        load(tmp_path, tmp_path / "out")
