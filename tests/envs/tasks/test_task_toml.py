"""The fields of task.toml: what they become, and what is refused."""

import re

import pytest
from harbor_samples import make_task

from envs.judging.specs import agent_spec, verifier_spec
from envs.tasks.harbor import load_task, load_tasks
from envs.types import BadTask
from sandboxes.base import Limits


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
            env = { KEY = "s", OTHER = "x-${MISSING:-y}" }
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


@pytest.mark.parametrize(
    ("toml", "agents", "verifiers"),
    [
        ("", True, True),
        ("[environment]\nallow_internet = false\n", False, False),
        ('[environment]\nnetwork_mode = "no-network"\n', False, False),
        ('[agent]\nnetwork_mode = "no-network"\n', False, True),
        ('[verifier]\nnetwork_mode = "no-network"\n', True, False),
    ],
)
def test_the_network_of_a_task_that_names_none_is_the_callers(tmp_path, toml, agents, verifiers):
    make_task(tmp_path, toml)
    (silent,), (public,) = load_tasks(tmp_path), load_tasks(tmp_path, Limits(network=True))
    assert (silent.limits.network, silent.hidden.network) == (False, False)
    assert (public.limits.network, public.hidden.network) == (agents, verifiers)
    assert silent.digest != public.digest, "a check without a network says nothing of a run with one"


def test_of_an_old_name_and_the_new_one_beside_it_the_new_one_counts(tmp_path, caplog):
    assert load_task(make_task(tmp_path, '[environment]\nmemory = "1G"\nmemory_mb = 512\n')).limits.memory_mb == 512
    assert "[environment] memory is not a field that is known here" in caplog.text


@pytest.mark.parametrize("line", ['version = "2.0"', 'schema_version = "0.9"', "schema_version = 1.0", 'version = "x"'])
def test_every_schema_version_is_read(tmp_path, line):
    assert load_task(make_task(tmp_path, line + "\n")).id == "sample"


def test_numbers_may_be_written_as_text_as_for_harbor(tmp_path):
    task = load_task(make_task(tmp_path, '[agent]\ntimeout_sec = "30"\n[environment]\ncpus = 0\nmemory_mb = 0\n'))
    assert (task.timeout_s, task.limits) == (30.0, Limits())


def test_fields_that_are_not_known_or_not_followed_are_named(tmp_path, caplog):
    toml = """
    canary = "x"
    [task]
    name = "no-org"
    anything = 1
    [metadata]
    anything = 1
    tags = "one"
    [agent.kwargs]
    max_turns = 60
    [environment]
    cpu = 1
    skills_dir = "/s"
    [verifier.environment]
    disk = 1
    """
    task = load_task(make_task(tmp_path, toml))
    assert (task.tags, task.skills_dir) == (("one",), "/s")
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"task sample: {what}; it is left out"
        for what in (
            "canary is not a field that is known here",
            "[agent] kwargs is not a field that is known here",
            "[verifier.environment] disk is not a field that is known here",
            "[environment] cpu is not a field that is known here",
        )
    ]


def test_a_task_may_take_roots_rights_away(tmp_path):
    plain, bare = make_task(tmp_path), make_task(tmp_path, '[metadata]\ncapabilities = "none"\n', "bare")
    assert [load_task(task).limits.capabilities for task in (plain, bare)] == ["default", "none"]
    with pytest.raises(BadTask, match=r"\[metadata\] capabilities"):
        load_task(make_task(tmp_path, '[metadata]\ncapabilities = "all"\n', "other"))


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
        pytest.param(f"x = {'[' * 5000}{']' * 5000}", "task.toml is not valid TOML", id="nested"),
        ("[environment]\ncpus = -1", "[environment] cpus: Input should be greater than or equal to 0, not -1"),
        ('[environment]\nmemory_mb = "lots"', "[environment] memory_mb: 'lots' is not a size"),
        ('[environment]\nworkdir = "app"', "[environment] workdir"),
        ("[environment]\ngpus = 1", "gpus: GPUs aren't supported; set gpus = 0"),
        ('[environment]\nos = "windows"', "os = 'windows' isn't supported"),
        ('[environment]\nnetwork_mode = "bridge"', "[environment] network_mode: 'bridge' isn't supported"),
        ('[agent]\nallowed_hosts = ["x.org"]', 'allowed_hosts need network_mode = "allowlist"'),
        ('[agent]\nnetwork_mode = "allowlist"\nallowed_hosts = ["http://x"]', "'http://x' is no host"),
        ('[[environment.mcp_servers]]\nname = "x"', "mcp_servers: server 'x': a server by stdio has a `command`"),
        (
            '[[environment.mcp_servers]]\nname = "x"\nurl = "http://db:8000/mcp"',
            "http://db:8000/mcp is not in the sandbox",
        ),
        ('[[environment.mcp_servers]]\nname = "x"\ncommand = "a"\ntransport = "pipe"', "there is no transport 'pipe'"),
        ('[[environment.mcp_servers]]\nname = "x"\nurl = "http://localhost:80"', "nothing starts it in the sandbox"),
        ("environment = { mcp_servers = [1] }", "mcp_servers: : Input should be a valid dictionary"),
        ("[verifier]\ntimeout_sec = -1", "[verifier] timeout_sec: Input should be greater than 0, not -1"),
        (
            '[verifier]\nenvironment_mode = "other"',
            "environment_mode: Input should be 'shared' or 'separate'",
        ),
        ('[verifier]\nenvironment_mode = "shared"\nenvironment = {}', "contradicts [verifier.environment]"),
        ('[[verifier.collect]]\ncommand = "x"\nservice = "db"', "service 'db': several containers aren't supported"),
        ("[verifier]\nenv = { A = 1 }", "[verifier.env] A: Input should be a valid string, not 1"),
        ('[verifier]\nenv = { A = "${NOPE}" }', "[verifier] env.A needs the variable NOPE"),
        ('[[steps]]\nname = "a/b"', "[steps.0] name: String should match pattern"),
        ('[[steps]]\nname = "a"\n[[steps]]\nname = "A"', "[[steps]] name: two steps have the same"),
        ("[metadata]\ngraded_paths = [1]", "[metadata.graded_paths] 0: Input should be a valid string"),
        ('[metadata]\ngraded_paths = ["/tests/x"]', "graded_paths: '/tests/x' can't be judged"),
        ('[metadata]\ngraded_paths = ["/"]', "graded_paths: '/' can't be judged"),
        ("[agent]\nuser = 1.5", "[agent] user"),
    ],
)
def test_a_bad_field_is_named(tmp_path, toml, said):
    with pytest.raises(BadTask, match=re.escape(said)) as caught:
        load_task(make_task(tmp_path, toml))
    assert str(caught.value).startswith("task sample: task.toml")


def test_a_variable_without_a_value_is_left_out_of_the_sandbox(tmp_path, caplog):
    toml = '[environment.env]\nA_KEY = "${A_KEY}"\nB = "${B:-b}"\n[solution.env]\nC = "${C}"\n'
    task = load_task(make_task(tmp_path, toml))
    assert (task.env, task.hidden.solution_env) == ({"B": "b"}, {})
    said = [record.getMessage() for record in caplog.records]
    assert sorted(one.partition(" needs the variable ")[0] for one in said) == [
        "task sample: task.toml: [environment] env.A_KEY",
        "task sample: task.toml: [solution] env.C",
    ]


def test_a_judges_key_may_come_from_a_variable_of_any_name(tmp_path):
    task = load_task(make_task(tmp_path, '[verifier.env]\nANTHROPIC_API_KEY = "${GRADER_KEY}"\n'))
    assert task.hidden.asks_judge and "ANTHROPIC_API_KEY" in task.hidden.test_env


def test_the_servers_of_a_task_are_those_in_its_sandbox(tmp_path):
    toml = (
        '[[environment.mcp_servers]]\nname = "notes"\ntransport = "stdio"\ncommand = "python3"\n'
        'args = ["/srv/notes.py"]\n'
        '[[environment.mcp_servers]]\nname = "web"\nurl = "http://localhost:8000/sse"\ncommand = "web"\n'
        'headers = { Authorization = "Bearer ${TOKEN:-none}" }\n'
    )
    notes, web = load_task(make_task(tmp_path, toml)).mcp_servers
    assert (notes.transport, notes.command, notes.of_task) == ("stdio", ("python3", "/srv/notes.py"), True)
    assert (web.transport, web.port, web.inside) == ("sse", 8000, True)  # as by Harbor, whose default it is
    assert web.headers == {"Authorization": "Bearer none"}
