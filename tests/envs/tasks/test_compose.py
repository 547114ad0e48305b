"""What is read of a docker-compose.yaml, and which are refused."""

import pytest
from harbor_samples import make_task

from envs.tasks.harbor import load_task, load_tasks
from envs.types import BadTask, HealthCheck, Service
from sandboxes.base import Limits


@pytest.mark.parametrize(
    "services, said",
    [
        ("main: {build: .}\n  db: {image: postgres}", "several containers aren't supported"),
        ("main: {build: ., privileged: true}", "privileged can't be kept"),
        ("main: [", "is not YAML"),
        pytest.param(f"main: {'[' * 5000}{']' * 5000}", "is not YAML", id="nested"),
        ("main: {environment: {DAY: 2024-13-45}}", "is not YAML: month must be"),
        ("main: [1]", "a service is a table"),
        ("main: {environment: A=B}", "a list of NAME=VALUE"),
        ("main: {environment: 5}", "a list of NAME=VALUE"),
        ("main: {1: 2, z: 3}", "1, z can't be kept"),
        ("main: {working_dir: app}", "working_dir 'app' is no absolute path; write one"),
        ("main: {working_dir: '${DIR:-/app}'}", "is no absolute path"),
        ("main: {tmpfs: '/app:size=9m'}", "tmpfs can't be kept"),
        ("main: {security_opt: ['seccomp=unconfined']}", "security_opt can't be kept"),
        ("main: {build: {context: docker}}", "build: the image of docker by Dockerfile can't be made"),
        ("main: {build: {context: ., dockerfile: Dockerfile.dev}}", "by Dockerfile.dev can't be made"),
        ("main: {build: {context: ., args: {A: b}}}", "build: args can't be kept"),
        ("main: {volumes: ['.:/app']}", "volumes: . can't be mounted"),
        ("main: {volumes: [{type: bind, source: /var/run/docker.sock, target: /x}]}", "docker.sock can't be mounted"),
    ],
)
def test_a_compose_file_of_more_than_one_container_or_with_mistakes_is_refused(tmp_path, services, said):
    directory = make_task(tmp_path)
    (directory / "environment/docker-compose.yaml").write_text(f"services:\n  {services}\n")
    with pytest.raises(BadTask, match=f"docker-compose.yaml.*{said}"):
        load_task(directory)


def test_a_compose_file_of_one_container_is_followed(tmp_path):
    directory = make_task(tmp_path, '[environment]\nenv = { B = "task" }\n')
    (directory / "environment/docker-compose.yaml").write_text(
        "services:\n  main:\n    build: {context: '${CONTEXT_DIR}'}\n    command: [sh, -c, sleep infinity]\n"
        "    working_dir: /srv\n    ports: ['80:80']\n    environment: [A=1, B=file, 'C=${HOST}', 'D=${D:-d}']\n"
        "    networks: [a]\n    shm_size: 1g\n    volumes: ['${LOGS}:/logs', './none:/x', 'named:/y']\n"
        "    security_opt: [label=disable]\n    tmpfs: /tmp\n    cap_drop: [ALL]\nnetworks: {a: {}}\n"
    )
    task = load_task(directory)
    assert (task.workdir, task.env) == ("/srv", {"A": "1", "B": "task", "D": "d"})


@pytest.mark.parametrize(
    ("service", "line", "command"),
    [
        ("{command: sleep infinity}", "", None),
        ("{entrypoint: [tail, -f, /dev/null]}", 'ENTRYPOINT ["/start.sh"]', None),
        ("{}", 'ENTRYPOINT ["/start.sh", "-v"]', ("/start.sh", "-v", "sh", "-c", "sleep infinity")),
        ("{}", "ENTRYPOINT serve 80", ("/bin/sh", "-c", "serve 80", "sh", "-c", "sleep infinity")),
        ("{}", "ENTRYPOINT []\nCMD serve", None),
        ("{command: 'bash -c \"serve & sleep 9\"'}", 'ENTRYPOINT ["/e"]', ("/e", "bash", "-c", "serve & sleep 9")),
        ("{entrypoint: /b.sh, command: [run, $$X]}", 'ENTRYPOINT ["/e"]', ("/b.sh", "run", "$X")),
    ],
)
def test_what_a_container_runs_from_its_start_is_read(tmp_path, service, line, command):
    directory = make_task(tmp_path)
    (directory / "environment/docker-compose.yaml").write_text(f"services: {{main: {service}}}\n")
    (directory / "environment/Dockerfile").write_text(f"FROM x\nWORKDIR /app\n{line}\n")
    assert load_task(directory).service == (None if command is None else Service(command))


def test_a_service_and_health_check_are_run_by_the_user_of_the_image_whoever_the_agent_is(tmp_path):
    directory = make_task(tmp_path, '[agent]\nuser = "agent"\n[environment]\nhealthcheck = { command = "up" }\n')
    for text, user in (("FROM x\nENTRYPOINT a\n", "root"), ("FROM x\nUSER web\nENTRYPOINT a\n", "web")):
        (directory / "environment/Dockerfile").write_text(text)
        task = load_task(directory)
        assert (task.service.user, task.health) == (user, HealthCheck("up", user))


@pytest.mark.parametrize(
    "said",
    [
        "",
        "[environment]\nallow_internet = true\n",
        '[agent]\nnetwork_mode = "public"\n[verifier]\nnetwork_mode = "public"\n',
    ],
)
def test_a_container_without_a_network_gets_none_whatever_the_run_or_the_task_gives(tmp_path, said):
    directory = make_task(tmp_path, said)
    compose = directory / "environment/docker-compose.yaml"
    for mode, reached in (("bridge", True), ("none", False)):
        compose.write_text(f"services:\n  main: {{network_mode: {mode}}}\n")
        (task,) = load_tasks(tmp_path, Limits(network=True))
        assert (task.limits.network, task.hidden.network) == (reached, reached)


def test_a_container_without_a_network_has_none_in_a_step_either_and_a_separate_verifier_has_its_own(tmp_path):
    public = 'network_mode = "public"'
    step = f'[[steps]]\nname = "a"\nagent = {{ {public} }}\nverifier = {{ {public} }}\n'
    for more, judged in (("", False), ('[verifier]\nenvironment_mode = "separate"\n', True)):
        directory = make_task(tmp_path / str(judged), f'{more}{step}[[steps]]\nname = "b"\n')
        (directory / "environment/docker-compose.yaml").write_text("services:\n  main: {network_mode: none}\n")
        for name in "ab":
            (directory / f"steps/{name}").mkdir(parents=True)
            (directory / f"steps/{name}/instruction.md").write_text("Do it.")
        task = load_task(directory)
        assert (task.limits.network, task.steps[0].hidden.network) == (False, judged)


def test_a_compose_file_of_another_name_is_the_tasks_own(tmp_path):
    directory = make_task(tmp_path)
    (directory / "environment/docker-compose.yml").write_text("services: {web: {}, db: {}}\n")
    assert load_task(directory).workdir is None
