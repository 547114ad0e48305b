"""verifiers' own server and client around an environment: traces are our rows, and failures of ours have no reward."""

import asyncio
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scripted_engine import ScriptedEngine
from sums import Sums, half_right

from atropos_agent.tokens.experts import write_experts
from atropos_agent.types import IGNORED
from envs.config import AgentEnvConfig
from envs.records.read import read_rollouts
from envs.types import Reward

pytest.importorskip("verifiers.v1")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecatedSince20"),
]

from verifiers.v1.configs.client import EvalClientConfig, TrainClientConfig  # noqa: E402
from verifiers.v1.errors import TaskError  # noqa: E402
from verifiers.v1.serve.client import EnvClient  # noqa: E402
from verifiers.v1.serve.server import EnvServer  # noqa: E402
from verifiers.v1.trace import Branch  # noqa: E402
from verifiers.v1.types import SamplingConfig  # noqa: E402
from verifiers.v1.utils.loaders import load_taskset, resolve_env_config  # noqa: E402

EXAMPLES = Path(__file__).parents[3] / "examples"


class OnceConfig(AgentEnvConfig):
    """Nothing is tried again."""

    attempts: int = 1
    task_failures: int = 1


class Failing(Sums):
    """Never gets its sandbox."""

    name = "failing"
    env_config_cls = OnceConfig

    def failing(self, task, attempt):
        return True


def rewrites(number, choice):
    """An engine of which each reply tells its experts."""
    tokens = len(choice["prompt_token_ids"]) + len(choice["token_ids"])
    choice["routed_experts"] = write_experts(np.full((tokens - 1, 2, 2), number % 8, dtype=np.uint8))


@pytest.fixture
def engine(smollm2_tokenizer):
    with ScriptedEngine(half_right, smollm2_tokenizer) as engine:
        engine.edit = rewrites
        yield engine


@pytest.fixture
def ask(engine, tokenizer_folder, tmp_path, monkeypatch):
    """Ask verifiers' server for episodes of the first tasks, by its client."""
    monkeypatch.syspath_prepend(EXAMPLES)

    async def asked(count, *options, environment="sums:Sums", client=TrainClientConfig, **sampling):
        own = [f"--env.tokenizer_name={tokenizer_folder}", f"--env.run_dir={tmp_path / 'runs'}", *options]
        taskset = {"id": "atropos_vf", "environment": environment, "options": own}
        config = resolve_env_config({"taskset": taskset})
        server = EnvServer(config, address="tcp://127.0.0.1:0")
        serving, client_of = asyncio.create_task(server.run()), EnvClient(server.address)
        try:
            await client_of.wait_for_server_startup(30)
            tasks = list(load_taskset(config.taskset))[:count]
            endpoint = client(base_url=engine.url, api_key_var="NONE")
            told = {"client": endpoint, "model": "scripted", "sampling": SamplingConfig(**sampling)}
            dumped = [task.data.model_dump(mode="json") for task in tasks]
            return await asyncio.gather(*(client_of.run(**told, task_data=data) for data in dumped))
        finally:
            await client_of.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    return asked


class Weighed(Sums):
    """Its reward function gives each turn an advantage of its own."""

    def reward(self, task, outcome):
        return Reward(1.0, [0.5] * len(outcome.result.steps))


@pytest.mark.parametrize("client", [TrainClientConfig, EvalClientConfig])
async def test_turns_with_advantages_of_their_own_are_refused_in_training_alone(ask, client):
    (episode,) = await ask(1, environment="test_verifiers:Weighed", client=client)
    if client is EvalClientConfig:
        assert episode.ok
    else:
        assert "advantages of their own, and prime-rl makes one" in episode.errors[0].message


def saved(folder):
    return {one.id: one for run in (folder / "runs").iterdir() for one in read_rollouts(run)}


async def test_each_trace_is_our_rows_token_for_token(ask, tmp_path):
    episodes = await ask(6, "--env.max_steps=4", temperature=1.0, top_k=-1, cache_salt="step-3")
    rollouts = saved(tmp_path)
    assert len(episodes) == len(rollouts) == 6
    for episode in episodes:
        assert episode.ok, episode.errors
        (trace,) = episode.traces
        rollout = rollouts[trace.info["rollout_id"]]
        assert (trace.reward, trace.stop_condition) == (rollout.reward.value, "answered")
        assert trace.task.data.name == rollout.task_id
        assert len(trace.branches) == len(rollout.result.segments)
        for branch, row in zip(trace.branches, rollout.result.segments, strict=True):
            trained = [mask != IGNORED for mask in row.masked_tokens]
            assert branch.token_ids == list(row.tokens)
            assert branch.sampled_mask == trained
            assert branch.logprobs == [p if own else 0.0 for p, own in zip(row.logprobs, trained, strict=True)]
            assert branch.advantages is None, "prime-rl makes them over its own group"
            assert branch.routed_experts.shape == (len(row.tokens), 2, 2)
        assert [call.finish_reason for call in trace.calls] == ["stop"] * len(rollout.result.steps)


async def test_a_failure_of_ours_is_an_error_and_no_reward(ask):
    (episode,) = await ask(1, environment=f"{__name__}:Failing")
    (trace,) = episode.traces
    assert not episode.ok
    assert trace.errors[0].type == "InfraError"
    assert trace.rewards == {}
    assert trace.nodes == []


async def test_what_makes_ratios_wrong_is_refused_for_training_and_taken_for_evaluations(ask):
    (episode,) = await ask(1, top_p=0.8)
    assert "top_p 0.8 cuts unlikely tokens off" in episode.errors[0].message
    (episode,) = await ask(1, client=EvalClientConfig, top_p=0.8)
    assert episode.ok


async def test_a_sampling_setting_without_effect_is_refused_by_name(ask):
    (episode,) = await ask(1, typical_p=0.5)
    assert "typical_p" in episode.errors[0].message


async def test_headers_for_the_inference_server_are_refused_by_name(ask):
    (episode,) = await ask(1, client=partial(TrainClientConfig, headers={"X-Mine": "1"}))
    assert "client.headers (X-Mine) are not sent" in episode.errors[0].message


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"taskset": {"task": {"rewards": {"mine": {"fn": "my.reward"}}}}}, "--env.taskset.task {'rewards'"),
        ({"taskset": {"system_prompt": "prompt.txt"}}, "--env.taskset.system_prompt"),
        ({"agent": {"max_turns": 3}}, "'max_turns': 3} has no effect"),
    ],
)
def test_settings_of_verifiers_own_agent_and_scoring_are_refused_by_name(given, named, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    taskset = {"id": "atropos_vf", "environment": "sums:Sums", **given.get("taskset", {})}
    with pytest.raises(ValueError, match=re.escape(named)):
        resolve_env_config({**given, "taskset": taskset})


async def test_its_tasks_are_not_judged_again_nor_played_by_another_env(monkeypatch):
    """vf-replay would make each reward 0, and vf-gepa would improve a prompt that nobody reads."""
    monkeypatch.syspath_prepend(EXAMPLES)
    config = resolve_env_config({"taskset": {"id": "atropos_vf", "environment": "sums:Sums"}})
    task = next(iter(load_taskset(config.taskset)))
    with pytest.raises(NotImplementedError, match="Env alone plays and judges its tasks"):
        task.with_system_prompt("Add!")
    with pytest.raises(TaskError, match="Env alone plays and judges its tasks"):
        await task.score(None)


async def test_prime_rl_reads_our_rows_of_the_traces(ask, tmp_path, monkeypatch):
    trajectories = pytest.importorskip("prime_rl.orchestrator.trajectories")
    # prime-rl of August 2026 reads it, and verifiers 0.4.0 has it no more.
    monkeypatch.setattr(Branch, "multi_modal_data", None, raising=False)
    for episode in await ask(6, "--env.max_steps=4"):
        (trace,) = episode.traces
        rows = saved(tmp_path)[trace.info["rollout_id"]].result.segments
        for sample, row in zip(trajectories.trace_to_samples(trace, env_name="sums"), rows, strict=True):
            trained = [mask != IGNORED for mask in row.masked_tokens]
            assert list(sample.token_ids) == list(row.tokens)
            assert list(sample.mask) == trained
            assert list(sample.logprobs) == [p if own else 0.0 for p, own in zip(row.logprobs, trained, strict=True)]
            assert sample.routed_experts.shape[0] == len(row.tokens)


@pytest.fixture
def vf_eval(engine, tokenizer_folder, tmp_path):
    """Run verifiers' program on two attempts at each of two tasks."""

    def run(*more, options=()):
        own = [f"--env.tokenizer_name={tokenizer_folder}", f"--env.run_dir={tmp_path / 'runs'}", *options]
        command = [Path(sys.executable).with_name("vf-eval"), "atropos_vf", "--env.taskset.environment", "sums:Sums"]
        command += ["--env.taskset.options", json.dumps(own), "-n", "2", "-r", "2", "-m", "scripted", *more]
        command += ["--client.base-url", engine.url, "--client.api-key-var", "NONE", "--output-dir", tmp_path / "out"]
        paths = f"{EXAMPLES}:{Path(__file__).parents[1]}:{EXAMPLES.parent}"
        environment = {"PYTHONPATH": paths, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout[-3000:] + done.stderr[-3000:]

    return run


def test_vf_eval_runs_on_it(vf_eval, tmp_path):
    ended, said = vf_eval()
    assert ended == 0, said
    assert len(saved(tmp_path)) == 4


def test_vf_eval_says_what_is_wrong_with_a_setting_before_it_begins(vf_eval):
    for more, options, sentence in (
        (["--env.agent.max-turns", "3"], [], "'max_turns': 3} has no effect"),
        (["--env.timeout.episode", "60"], [], "--env.timeout {'episode': 60.0} has no effect"),
        ([], ["--env.max_step=3"], "did you mean --env.max_steps"),
        ([], ["--env.estimator=none"], "leave out --env.estimator"),
    ):
        ended, said = vf_eval(*more, options=options)
        assert ended == 1 and sentence in said and "Traceback" not in said, said


def test_vf_eval_says_which_tasks_can_not_be_used(vf_eval, tmp_path):
    ended, said = vf_eval("--env.taskset.environment", "envs.swe.environment:SWEEnv", options=["--env.tasks=/nowhere"])
    assert ended == 1 and "/nowhere is not a directory; a task directory holds" in said and "Traceback" not in said, (
        said
    )


def test_the_log_of_vf_eval_has_our_words(vf_eval, tmp_path):
    ended, said = vf_eval("--sampling.typical-p", "0.5")
    assert ended == 0, said
    (log,) = (tmp_path / "out").glob("*/logs/attempt_1/eval.log")
    assert "sampling settings that have no effect here: typical_p" in log.read_text()
