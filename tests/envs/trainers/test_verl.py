"""verl's own worker, estimator, engine and loss around our rollouts; and what of a rollout becomes its output."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pids import lives
from row_samples import rollout, score
from sums import Sums
from waiting import in_time, until

from atropos_agent.tokens.experts import write_experts
from envs.running.sinks import TrainerGroup
from envs.types import InfraError
from sandboxes.shielding import stop

pytest.importorskip("verl")

pytestmark = pytest.mark.filterwarnings("ignore")  # verl's, and of what it imports

STEPS = Path(__file__).with_name("verl_steps.py")


@pytest.fixture(scope="module")
def verl():
    from envs.trainers import verl  # which takes its time

    return verl


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_verl_takes_steps_with_our_rows(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(STEPS.parents[3])}
    command = [sys.executable, STEPS, tmp_path, "3"]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    steps = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    assert len(steps) == 3, done.stderr[-3000:]
    for number, step in enumerate(steps):
        assert step["rows"] == 8
        assert step["versions"] == [number], "the weights that were handed over sampled every reply"
        assert step["differs"] < 1e-5, "verl's logprobs of our rows are those that they were sampled with"
        assert step["sessions"] >= 8 * (number + 1), "a rollout's requests share a name"
        assert step["grad"] > 0


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_steps_leave_no_inference_server(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(STEPS.parents[3])}
    with (tmp_path / "said").open("wb") as said:
        steps = subprocess.Popen([sys.executable, STEPS, tmp_path, "3"], env=environment, stdout=said, stderr=said)
    log = tmp_path / "engine.log"
    assert in_time(lambda: log.exists() and log.read_text()), (tmp_path / "said").read_text()[-3000:]
    children = [int(pid) for pid in Path(f"/proc/{steps.pid}/task/{steps.pid}/children").read_text().split()]
    assert any(b"atropos_agent.cpu_engine" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children)
    steps.kill()
    steps.wait()
    assert in_time(lambda: not any(map(lives, children)))


class Client:
    """Stands in for LLMServerClient."""

    def __init__(self, **answer):
        self.answer = answer
        self.asked = []

    async def generate(self, request_id, **asked):
        self.asked.append((request_id, asked))
        usual = {"token_ids": [5, 6], "log_probs": [-0.5, -0.25], "stop_reason": "completed", "routed_experts": None}
        return SimpleNamespace(**usual | {"extra_fields": {"min_global_steps": 3, "global_steps": 4}} | self.answer)


@pytest.mark.parametrize(
    ("answer", "most", "finish"),
    [
        ({}, 8, "stop"),
        ({}, 2, "length"),
        ({"stop_reason": "aborted"}, 8, "abort"),
        ({"stop_reason": None}, 8, "stop"),
    ],
)
async def test_verls_client_samples_for_us(verl, answer, most, finish):
    client = Client(**answer)
    sampled = await verl.VerlEngine(client).once([1, 2], {"max_tokens": most, "temperature": 1.0}, "rollout")
    assert (list(sampled.ids), sampled.finish_reason, sampled.version) == ([5, 6], finish, 3)
    ((name, asked),) = client.asked
    assert (name, asked["prompt_ids"]) == ("rollout", [1, 2])
    assert asked["sampling_params"] == {"max_tokens": most, "temperature": 1.0, "logprobs": True}


class Others(Sums):
    """Another environment, with tasks of its own."""


async def test_loops_of_two_environments_share_a_client_and_no_run(verl, tokenizer_folder, tmp_path):
    def loop(environment):
        made = object.__new__(verl.AtroposLoop)  # verl's own parts of it are not needed
        made.server_manager, made.rollout_config, made._environment = client, {"temperature": 1.0}, environment
        made._options = [f"--env.tokenizer_name={tokenizer_folder}", f"--env.run_dir={tmp_path}"]
        return made

    client, names = Client(), ("sums:Sums", f"{__name__}:Others", "sums:Sums")
    first, second, again = [await loop(name)._open_run({"temperature": 1.0}) for name in names]
    try:
        assert isinstance(second.run.env, Others)
        assert again is first and not isinstance(first.run.env, Others)
    finally:
        for runs in verl.AtroposLoop._runs_by_client[client].values():
            await stop(runs.end())


async def test_runs_end_with_the_client_and_another_trainers_are_its_own(verl, tokenizer_folder, tmp_path):
    def loop():
        made = object.__new__(verl.AtroposLoop)
        made.server_manager, made.rollout_config, made._environment = Client(), {"temperature": 1.0}, "sums:Sums"
        made._options = [f"--env.tokenizer_name={tokenizer_folder}", f"--env.run_dir={tmp_path}"]
        return made

    first, second = loop(), loop()
    runs = [await one._open_run({"temperature": 1.0}) for one in (first, second)]
    assert len({run.run.env.run_dir for run in runs}) == 2
    for one, run in ((first, runs[0]), (second, runs[1])):
        assert not run.ended
        del one.server_manager
        await until(lambda run=run: run.ended)


def given(*rollouts):
    return TrainerGroup(score(rollouts), {one.id: one for one in rollouts}, "g0")


def test_each_row_is_an_output_of_verls(verl):
    first, second = verl.make_outputs(given(rollout(1.0, 2)), 8)
    assert (first.prompt_ids, first.response_ids, first.response_mask) == ([1], [2, 3], [1, 1])
    assert first.response_logprobs == [-0.5, -0.5]
    assert second.response_ids == [2, 3, 4]
    assert {one.reward_score for one in (first, second)} == {1.0}
    assert "advantages" not in first.extra_fields


def test_experts_span_prompt_and_response(verl):
    one = rollout(1.0, 1)
    rows = [replace(row, experts=write_experts(np.ones((2, 4, 2), dtype=np.uint8))) for row in one.result.segments]
    (output,) = verl.make_outputs(given(replace(one, result=replace(one.result, segments=rows))), 8)
    assert output.routed_experts.shape == (2, 4, 2)


def test_a_prompt_longer_than_verls_is_the_beginning_of_the_response_untrained(verl):
    one = rollout(1.0, 1)
    rows = [
        replace(
            row,
            tokens=[8, 9, *row.tokens],
            masked_tokens=[-100, -100, *row.masked_tokens],
            logprobs=[1.0, 1.0, *row.logprobs],
        )
        for row in one.result.segments
    ]
    steps = [replace(step, start=3) for step in one.result.steps]
    record = [replace(exchange, given=(8, 9, 1)) for exchange in one.result.record]
    longer = replace(one, result=replace(one.result, segments=rows, steps=steps, record=record))
    (output,) = verl.make_outputs(given(longer), 2)
    assert (output.prompt_ids, output.response_ids, output.response_mask) == ([8, 9], [1, 2, 3], [0, 1, 1])
    assert output.response_logprobs == [0.0, -0.5, -0.5]


def test_turns_with_advantages_of_their_own_are_refused(verl):
    with pytest.raises(ValueError, match=r"turns of rollout r have advantages of their own, and verl makes one"):
        list(verl.make_outputs(given(rollout(1.0, 1, turn_advantages=[0.5])), 8))


def test_a_rollout_whose_rows_are_not_the_record_is_a_failure_and_no_output(verl):
    one = rollout(1.0, 1)
    unsound = replace(one, result=replace(one.result, record=()))
    with pytest.raises(InfraError):
        list(verl.make_outputs(given(unsound), 8))


class Queue:
    """Plays verl's TransferQueue, which wants Ray."""

    def __init__(self):
        self.keys, self.fields, self.tags = [], [], {}

    async def async_kv_put(self, key, partition_id, tag):
        self.tags[key] = self.tags.get(key, {}) | tag

    def kv_list(self):
        return {"train": self.tags}

    def kv_clear(self, partition_id, keys):
        for key in keys:
            self.tags.pop(key, None)

    async def async_kv_batch_put(self, keys, fields, tags, partition_id):
        self.keys += keys
        self.fields += [fields[n] for n in range(len(keys))]


async def test_the_v1_worker_makes_one_advantage_of_a_rollouts_outputs(verl, monkeypatch):
    import torch
    from verl import DataProto
    from verl.trainer.ppo.core_algos import AdvantageEstimator
    from verl.trainer.ppo.v1 import agent_loop_tq
    from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

    queue = Queue()
    monkeypatch.setattr(agent_loop_tq, "tq", queue)
    worker = object.__new__(agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class)
    worker.reward_loop_worker_handles, worker.distillation_enabled, worker.processor = None, False, None
    for number, one in enumerate([rollout(1.0, 3), rollout(0.0, 1)]):
        kwargs = {"uid": "g", "session_id": number, "global_steps": 0, "raw_prompt": []}
        await worker._agent_loop_postprocess(list(verl.make_outputs(given(one), 8)), False, **kwargs)
    assert queue.keys == ["g_0_0", "g_0_1", "g_0_2", "g_1_0"]

    names = ("response_mask", "rm_scores", "rollout_log_probs")
    columns = {
        name: torch.nn.utils.rnn.pad_sequence([field[name] for field in queue.fields], batch_first=True)
        for name in names
    }
    columns["token_level_scores"] = columns["token_level_rewards"] = columns["rm_scores"]
    data = DataProto.from_dict(columns, non_tensors={"uid": np.array(["g"] * 4, dtype=object)})
    told = {"adv_estimator": AdvantageEstimator.GRPO, "norm_adv_by_std_in_grpo": False}
    got = compute_advantage_for_multi_trajectories(data, queue.keys, **told).batch
    assert got["advantages"].sum(1).tolist() == [1.0, 1.5, 2.0, -1.0], "0.5 a token, by two rollouts and not four rows"


class Refills(Exception):
    """The trainer has replaced failed groups several times."""


@pytest.mark.parametrize(
    ("task", "told", "error", "ends"),
    [
        ("sum-2", ["--env.estimator=none"], None, (ValueError, "Unknown status: refused, leave out --env.estimator")),
        ("sum-2", [], ValueError("no place for it"), (ValueError, "Unknown status: refused, no place for it")),
        (None, [], None, (ValueError, r'Unknown status: refused, a row .* None as its extra_info\["task"\]: give')),
        ("sum-2", [], InfraError("tokens", "the daemon is away"), (Refills, "")),
    ],
)
async def test_a_wrong_setting_ends_the_v1_trainer_which_replaces_failed_groups_for_ever(
    verl, monkeypatch, tokenizer_folder, tmp_path, task, told, error, ends
):
    from verl.trainer.ppo.v1 import agent_loop_tq, replay_buffer

    queue, refilled = Queue(), []
    for module in (agent_loop_tq, replay_buffer):
        monkeypatch.setattr(module, "tq", queue)

    async def failing(*_, **__):
        raise error

    if error is not None:
        monkeypatch.setattr(verl, "rollout", failing)
    loop = object.__new__(verl.AtroposLoop)
    loop.server_manager, loop.config = Client(), SimpleNamespace(trainer={"use_v1": True})
    settings = {"temperature": 1.0, "response_length": 64, "prompt_length": 64}
    loop.rollout_config = type("Told", (dict,), {"__getattr__": dict.__getitem__})(settings)
    loop._environment = "sums:Sums"
    loop._options = [f"--env.tokenizer_name={tokenizer_folder}", f"--env.run_dir={tmp_path}", *told]
    worker = object.__new__(agent_loop_tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class)
    worker.config = SimpleNamespace(actor_rollout_ref=SimpleNamespace(rollout=SimpleNamespace(n=2)))

    async def run_agent_loop(sampling, *, trajectory, trace, session_id, **prompt):
        return await loop.run(sampling, extra_info=prompt["extra_info"])

    worker._run_agent_loop = run_agent_loop

    async def generate(uid):
        queue.tags[uid] = {"is_prompt": True, "status": "pending", "global_steps": 0}
        prompt = {"uid": uid, "extra_info": {"task": task}}
        await worker._run_prompt(prompt, {"temperature": 1.0}, trajectory={"validate": False})

    def refill(count):
        refilled.append(count)
        if len(refilled) > 3:
            raise Refills
        asyncio.run_coroutine_threadsafe(generate(f"u{len(refilled)}"), here).result(60)

    here = asyncio.get_running_loop()
    buffer = replay_buffer.ReplayBufferAsync("separate_async", {}, None, "drop", {}, 0.01, refill_fn=refill)
    await generate("u0")
    kind, message = ends
    try:
        with pytest.raises(kind, match=message):
            await asyncio.to_thread(buffer.sample, 0, "train", 1)
    finally:
        for runs in verl.AtroposLoop._runs_by_client[loop.server_manager].values():
            await stop(runs.end())
