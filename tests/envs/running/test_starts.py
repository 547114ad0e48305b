"""A start under other conditions than the ones before is refused, or goes on openly."""

import orjson
import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from sums import Sums, fill

from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.engines.errors import ModelNotServed
from atropos_agent.engines.protocols import GenerateServer
from envs.records.redaction import Redactor
from envs.running.database import RunDirectoryError, lock_directory
from envs.running.run import open_run
from envs.running.starts import conditions_of, write_start
from envs.types import InfraError


async def test_every_start_is_written_without_secrets(make_env):
    for _ in range(2):
        env = make_env(system_prompt='The passwords are hunter2hunter2 and pass"word.', max_num_workers=20240101)
        env.redactor = Redactor(["hunter2hunter2", 'pass"word', "20240101"])
        async with open_run(env, "process") as run:
            pass
    text = (env.run_dir / "run.json").read_text()
    told = orjson.loads(text)
    assert "hunter2" not in text
    assert told["starts"][0]["options"]["system_prompt"] == "The passwords are *** and ***."
    assert told["starts"][0]["options"]["max_num_workers"] == 20240101, "a number is no secret"
    assert told["id"] == run.id
    first, second = told["starts"]
    assert (first["command"], first["options"]["group_size"], first["seed"]) == ("process", 4, 0)
    assert first["model"]["name"] == "scripted"
    assert first["engines"][0]["url"] == env.servers[0].config.base_url
    assert first["tokenizer"]["digest"] == second["tokenizer"]["digest"]
    assert first["changed"] == second["changed"] == []


async def test_the_version_of_an_inference_server_is_written_where_it_tells_it(make_env):
    class Server(CompletionsServer):
        async def version(self):
            return "0.14.1"

    env = make_env()
    described = APIServerConfig(model_name="scripted", base_url="http://localhost:9/v1", server_type="vllm")
    under = await conditions_of(env)
    env.server.servers = [*env.server.servers, Server(described)]
    with lock_directory(env.run_dir):
        await write_start(env, "evaluate", under)
    (start,) = orjson.loads((env.run_dir / "run.json").read_bytes())["starts"]
    assert [engine["version"] for engine in start["engines"]] == [None, "0.14.1"]
    assert start["model"]["revision"] is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"temperature": 0.5}, r"temperature is 0\.5, it was 1\.0"),
        ({"system_prompt": "Be brief."}, "system_prompt is 'Be brief.', it was None"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "template is "),
        ({"tool_format": "plain"}, "tool_format is 'plain', it was 'auto'"),
    ],
)
async def test_other_conditions_are_refused_by_name_or_allowed(make_env, options, named):
    async with open_run(make_env()):
        pass
    with pytest.raises(RunDirectoryError, match=named) as refused:
        async with open_run(make_env(**options)):
            pass
    name = str(refused.value).rpartition("--env.allow_change ")[2].split()[0]
    async with open_run(make_env(**options, allow_change=[name])) as run:
        (change,) = orjson.loads((run.env.run_dir / "run.json").read_bytes())["starts"][-1]["changed"]
        assert change.startswith(f"{name} is ")
    async with open_run(make_env(**options)):  # from now on these are the run's
        pass


async def test_another_model_is_refused(make_env):
    async with open_run(make_env()):
        pass
    env = make_env()
    env.servers[0].config.model_name = "another"
    with pytest.raises(RunDirectoryError, match="model is 'another', it was 'scripted'"):
        async with open_run(env):
            pass


@pytest.mark.parametrize("changed", [True, False])
async def test_under_other_conditions_unfinished_groups_begin_again(engine, make_env, changed):
    class Failing(Sums):
        async def attempt(self, task, seat):
            outcome = await super().attempt(task, seat)
            if seat.member:
                raise InfraError("verifier", "it crashed")
            return outcome

    async with open_run(make_env(Failing, group_size=2, attempts=1)) as run:
        await fill(run)
        await fill(run, await run.queue.request(run.queue.task("sum-3"), "asked", 1))
    before = engine.requests
    env = make_env(group_size=2, allow_change=["model"])
    if changed:
        env.servers[0].config.model_name = "another"
    async with open_run(env) as run:
        group, _ = await fill(run)
        again = await run.queue.request(run.queue.task("sum-3"), "asked", 1)
    models = [member.result.conditions.model for member in group.members.values()]
    assert models == ["another" if changed else "scripted"] * 2
    assert (engine.requests > before) == changed, "unchanged, it goes on with the replies that were sampled"
    assert again.members.keys() == (set() if changed else {0})


async def test_another_environment_is_refused(make_env):
    async with open_run(make_env()):
        pass
    env = make_env()
    env.name = "another"
    with pytest.raises(RunDirectoryError, match=r"environment is 'another', it was .*--env.allow_change environment"):
        async with open_run(env):
            pass


async def test_what_can_never_change_is_not_offered(make_env):
    async with open_run(make_env()):
        pass
    with pytest.raises(RunDirectoryError, match="group_size is 2, it was 4") as refused:
        async with open_run(make_env(group_size=2)):
            pass
    assert "allow_change" not in str(refused.value)


@pytest.mark.parametrize("name", ["default", ""])
async def test_a_model_that_is_not_named_is_the_only_one_of_its_server(engine, make_env, name):
    env = make_env(group_size=1)
    env.servers[0].config.model_name = name
    async with open_run(env) as run:
        _, wire = await fill(run)
    assert wire is not None
    assert orjson.loads((env.run_dir / "run.json").read_bytes())["starts"][0]["model"]["name"] == "scripted"


async def test_a_model_that_is_not_named_is_refused_at_the_start_where_there_are_several(engine, make_env):
    env = make_env()
    env.servers[0].config.model_name = "default"
    engine.served = ["scripted", "policy"]
    with pytest.raises(ModelNotServed, match=r"set --openai\.model_name to one of scripted, policy"):
        async with open_run(env):
            pass
    assert not engine.requests


async def test_a_model_that_nobody_knows_is_no_condition(make_env):
    env = make_env()
    env.server.servers = [GenerateServer(APIServerConfig(base_url=env.servers[0].url, model_name="default"))]
    assert "model" not in await conditions_of(env)
    with lock_directory(env.run_dir):
        await write_start(env, "evaluate", await conditions_of(env))
    assert orjson.loads((env.run_dir / "run.json").read_bytes())["starts"][0]["model"]["name"] is None
