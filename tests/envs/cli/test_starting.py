"""A plain OpenAI endpoint: evaluate and process work, their rows say that they carry no tokens; serve refuses."""

import asyncio
import os
from contextlib import nullcontext
from pathlib import Path

import orjson
import pytest
from pytest_httpserver import HTTPServer
from scripted_engine import ScriptedEngine
from sums import Sums, half_right
from teacher_engine import TeacherEngine
from transformers import AutoTokenizer

from atropos_agent.engines.errors import ModelNotServed, NotThisServer
from atropos_agent.types import EngineError
from envs import cli
from envs.cli import starting
from envs.config import AgentEnvConfig
from envs.options import Options, UsageError
from envs.running import waiting
from envs.types import BadTask
from sandboxes.base import DaemonUnavailable


@pytest.fixture
def endpoint(httpserver: HTTPServer):
    message = {"role": "assistant", "content": "0"}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
    httpserver.expect_request("/v1/chat/completions").respond_with_json(answer)
    return [
        "--openai.server_type",
        "openai",
        "--openai.base_url",
        httpserver.url_for("/v1"),
        "--openai.model_name",
        "m",
    ]


def test_serve_refuses_to_start(endpoint, capsys):
    assert cli.main(Sums, "serve", endpoint) == 2
    assert "no token ids and no logprobs" in capsys.readouterr().err


@pytest.mark.parametrize("option", [("top_p", "0.8"), ("top_k", "20"), ("min_p", "0.05"), ("temperature", "0")])
def test_serve_refuses_what_makes_a_trainers_ratios_wrong_by_its_name(capsys, option):
    name, value = option
    assert cli.main(Sums, "serve", [f"--env.{name}", value]) == 2
    assert f"{name} {value} cuts unlikely tokens off" in capsys.readouterr().err


def test_groups_say_that_they_carry_no_tokens(endpoint, tmp_path):
    options = ["--env.total_steps", "1", "--env.group_size", "2", "--env.run_dir", str(tmp_path)]
    assert cli.main(Sums, "process", [*endpoint, "--openai.api_key", "x", *options]) == 0
    (group,) = map(orjson.loads, (tmp_path / "groups.jsonl").read_bytes().splitlines())
    assert group["tokens"] == [[], []]
    assert len(group["messages"]) == len(group["scores"]) == 2
    assert group["generation_params"]["carries_tokens"] is False


def test_a_file_without_a_group_is_not_named(endpoint, tmp_path, monkeypatch, capsys):
    async def stopped(env):
        return env.run_dir / "groups.jsonl"

    monkeypatch.setattr(starting, "process_groups", stopped)
    assert cli.main(Sums, "process", [*endpoint, "--env.total_steps", "1", "--env.run_dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"results: {tmp_path}\n"


def test_evaluate_works(endpoint, tmp_path):
    options = ["--env.run_dir", str(tmp_path), "--openai.api_key", "x"]
    assert cli.main(Sums, "evaluate", [*endpoint, *options]) == 0
    assert (tmp_path / "eval-0.json").exists()


@pytest.mark.parametrize("named", [True, False], ids=["by an option", "by the inference server"])
def test_the_tokenizer_of_a_command_is_read_once(smollm2_tokenizer, tokenizer_folder, tmp_path, monkeypatch, named):
    read, names = AutoTokenizer.from_pretrained, []

    def noted(name, **options):
        names.append(str(name))
        return read(name, **options)

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", noted)
    given = [f"--env.run_dir={tmp_path}", *([f"--env.tokenizer_name={tokenizer_folder}"] if named else [])]
    with ScriptedEngine(half_right, smollm2_tokenizer, root=tokenizer_folder) as engine:
        assert cli.main(Sums, "evaluate", [f"--openai.base_url={engine.url}", *given]) == 0
    assert names.count(tokenizer_folder) == 1


@pytest.fixture
def wrong_key(httpserver):
    said = {"error": {"message": "Incorrect API key provided: sk-12345678"}}
    httpserver.expect_request("/v1/chat/completions").respond_with_json(said, 401)
    return [
        "--openai.base_url",
        httpserver.url_for("/v1"),
        "--openai.model_name",
        "m",
        "--openai.server_type",
        "openai",
    ]


@pytest.mark.parametrize("command", ["evaluate", "process"])
def test_a_wrong_key_ends_a_command_with_the_servers_own_words_and_the_option(wrong_key, tmp_path, capsys, command):
    options = [*wrong_key, "--openai.api_key", "sk-12345678", "--env.run_dir", str(tmp_path), "--env.total_steps", "1"]
    assert cli.main(Sums, command, options) == 2
    err = capsys.readouterr().err
    assert "answered 401: Incorrect API key provided: ***; set --openai.api_key to its key" in err
    assert "RetryError" not in err


@pytest.mark.parametrize(("lost", "status"), [(1, 0), (2, 1), (3, 1)])
def test_an_evaluation_that_lost_too_much_ends_with_a_status_and_the_reason(endpoint, tmp_path, capsys, lost, status):
    class Losing(Sums):
        def failing(self, task, attempt):
            return int(task.id.removeprefix("sum-")) < lost

    options = ["--env.run_dir", str(tmp_path), "--env.attempts", "1", "--env.eval_lost", "0.4"]
    assert cli.main(Losing, "evaluate", [*endpoint, *options]) == status
    said = capsys.readouterr()
    assert f"results: {tmp_path}" in said.out
    assert ("the sandbox is gone" in said.err.splitlines()[-1]) is (status == 1)
    assert (tmp_path / "eval-0.json").exists()


@pytest.mark.parametrize("refused", [False, True])
async def test_the_comparison_of_tokenizers_leaves_no_connection_open(make_env, engine, monkeypatch, refused):
    env = make_env()
    if refused:
        monkeypatch.setattr(env.tokenizer, "encode", lambda text, **_: [0])
    with pytest.raises(UsageError) if refused else nullcontext():
        await starting.check_tokenizer(env)
    assert engine.requests, "the engine was asked"
    async with asyncio.timeout(10):
        while engine.connections:  # noqa: ASYNC110 - the engine has a loop of its own
            await asyncio.sleep(0.01)


class Starting:
    """Stands for an inference server's `connect`: raises each of its errors, then connects."""

    def __init__(self, server, *errors):
        self.connect, self.errors = server.connect, list(errors)

    async def __call__(self):
        if self.errors:
            raise self.errors.pop(0)
        await self.connect()


REFUSES = NotThisServer("401")
GONE, UNSERVED = EngineError("no inference server answers"), ModelNotServed("it does not serve 'policy'")


async def test_an_inference_server_that_comes_up_and_loads_its_adapter_later_is_waited_for(make_env, monkeypatch):
    monkeypatch.setattr(waiting, "LOOK_S", 0.001)
    env = make_env()  # with a tokenizer that is named, so that none has to be asked for
    (server,) = env.server.servers
    monkeypatch.setattr(server, "connect", Starting(server, GONE, GONE, UNSERVED, UNSERVED))
    await starting.check_tokenizer(env)
    assert not server.connect.errors


@pytest.mark.parametrize("errors", [[UNSERVED], [GONE, *[UNSERVED] * 99], [REFUSES], [GONE, *[REFUSES] * 99]])
async def test_a_model_that_it_does_not_serve_is_told(make_env, monkeypatch, errors):
    monkeypatch.setattr(waiting, "LOOK_S", 0.001)
    env = make_env()
    (server,) = env.server.servers
    monkeypatch.setattr(server, "connect", Starting(server, *errors))
    with pytest.raises((ModelNotServed, NotThisServer)):
        await starting.check_tokenizer(env)


async def test_a_docker_daemon_that_is_not_there_at_the_start_is_waited_for_by_every_command(tmp_path):
    looks = []

    class Boxed(Sums):
        @classmethod
        async def preflight(cls, config):
            looks.append(config)
            if len(looks) < 2:
                raise DaemonUnavailable("Connection refused. Start Docker.")

    options = Options(env=AgentEnvConfig(run_dir=tmp_path))
    await starting.check(Boxed, options)
    assert len(looks) == 2


async def test_beside_a_docker_daemon_that_is_not_there_what_is_wrong_is_told_at_once(tmp_path):
    class Boxed(Sums):
        @classmethod
        async def preflight(cls, config):
            raise ExceptionGroup("", [DaemonUnavailable("Start Docker."), BadTask("no task")])

    with pytest.raises(UsageError, match=r"2 things are wrong:\n- Start Docker.\n- no task"):
        await starting.check(Boxed, Options(env=AgentEnvConfig(run_dir=tmp_path)))


async def test_a_mistake_that_two_looks_meet_is_told_once(tmp_path):
    class Twice(Sums):
        @classmethod
        async def preflight(cls, config):
            raise ExceptionGroup("", [ValueError("no agent"), ValueError("no agent")])

    with pytest.raises(UsageError, match=r"^no agent$"):
        await starting.check(Twice, Options(env=AgentEnvConfig(run_dir=tmp_path)))


async def test_a_file_in_place_of_a_folder_for_logs_is_refused_before_the_evaluation(tmp_path):
    (tmp_path / "log").touch()
    options = Options(env=AgentEnvConfig(run_dir=tmp_path), inspect_log=tmp_path / "log")
    with pytest.raises(UsageError, match=r"--inspect_log .*log can't be written \(File exists\); give another"):
        await starting.check(Sums, options)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("data_dir_to_save_evals", r"--env.data_dir_to_save_evals .*file can't be written \(File exists\)"),
        ("data_path_to_save_groups", r"--env.data_path_to_save_groups .*folder is a folder; name a file in it"),
    ],
)
async def test_what_can_not_be_written_in_the_end_is_refused_at_the_start(tmp_path, option, said):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    place = tmp_path / ("file" if option == "data_dir_to_save_evals" else "folder")
    with pytest.raises(UsageError, match=said):
        await starting.check(Sums, Options(env=AgentEnvConfig(run_dir=tmp_path / "run", **{option: str(place)})))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("nowhere")])
@pytest.mark.parametrize("name", ["run.json", "state.db", "rollouts.jsonl"])
async def test_what_lies_where_a_run_writes_its_files_is_refused_at_the_start(tmp_path, make, name):
    make(tmp_path / name)
    with pytest.raises(UsageError, match=rf"there is something else \({name}\); move it away"):
        await starting.check(Sums, Options(env=AgentEnvConfig(run_dir=tmp_path)))


async def test_a_teacher_that_is_not_there_yet_is_waited_for(make_env, smollm2_tokenizer, monkeypatch):
    monkeypatch.setattr(waiting, "LOOK_S", 0.01)
    with TeacherEngine(smollm2_tokenizer) as teacher:
        env = make_env(teacher=teacher.url)
        teacher.faults = [503, 503]  # of the first looks
        await starting.check_teacher(env)
    assert teacher.scored, "it was asked to score"


async def test_a_teacher_that_can_not_score_ends_the_start_by_name(make_env, smollm2_tokenizer):
    with TeacherEngine(smollm2_tokenizer) as teacher:
        teacher.known = False
        with pytest.raises(UsageError, match=r"the teacher at .* can't score .*--env.teacher needs"):
            await starting.check_teacher(make_env(teacher=teacher.url))


def test_a_teacher_of_a_server_without_token_ids_is_refused(endpoint, capsys):
    assert cli.main(Sums, "process", [*endpoint, "--env.teacher", "http://127.0.0.1:9/v1"]) == 2
    assert "--env.teacher scores token ids, and --openai.server_type openai gives none" in capsys.readouterr().err


async def test_a_teachers_key_without_a_variable_ends_the_start_before_any_server_is_waited_for(tmp_path):
    config = AgentEnvConfig(run_dir=tmp_path, teacher="http://127.0.0.1:9/v1", teacher_key="sk-of-the-teacher")
    with pytest.raises(UsageError, match=r"^--env\.teacher_key is no variable of the environment") as refused:
        await starting.check(Sums, Options(env=config))
    assert "sk-" not in str(refused.value)


def test_a_teachers_key_is_a_secret(endpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("THE_TEACHERS", "sk-of-the-teacher")
    words = ["--env.teacher", "http://127.0.0.1:9/v1", "--env.teacher_key", "THE_TEACHERS"]
    options = ["--env.run_dir", str(tmp_path), "--env.eval_samples", "1"]
    assert cli.main(Sums, "evaluate", [*endpoint, *options, *words]) == 0
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in written if "sk-of-the-teacher" in text]
