"""AReaL's own checks, batch and advantages of our rollouts."""

import logging
from types import SimpleNamespace

import pytest
from played import GROUPS, Policy, as_row, close, rollouts, serve_sglang, truth

from envs.types import Failure, InfraError

actor = pytest.importorskip("areal.trainer.ppo.actor", reason="AReaL is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # AReaL's

SIZE = 4


class Given:
    """A workflow of rollouts that were made before."""

    def __init__(self, found):
        self.found = list(found)

    async def arun_episode(self, engine, data):
        from envs.trainers.areal import make_tensors

        return make_tensors(self.found.pop(0))


async def read(workflow, engine, items):
    """AReaL's rows after its own steps, in the form of `truth`."""
    from areal.infra.remote_inf_engine import GroupedRolloutWorkflow
    from areal.infra.workflow_executor import check_trajectory_format

    grouped = GroupedRolloutWorkflow(workflow, SIZE, logging.getLogger("areal"))
    groups = [await grouped.arun_episode(engine, item) for item in items]
    assert all(check_trajectory_format(group, batch_size=SIZE) for group in groups)
    return as_rows(groups)


def as_rows(groups):
    """Rows with AReaL's advantages, in the form of `truth`: its values at place n are of token n + 1."""
    from areal.api.cli_args import NormConfig
    from areal.utils.data import KLEstimator, Normalization

    mine = object.__new__(actor.PPOActor)
    mine.config = SimpleNamespace(overlong_reward_penalty=False, use_decoupled_loss=False, recompute_logprob=False)
    mine.reward_bias, mine.reward_scaling, mine.reward_clip, mine.kl_ctl = 0.0, 1.0, 20.0, 0.0
    mine.reward_norm = Normalization(NormConfig(mean_level="group", std_level=None, group_size=SIZE))
    mine.kl_estimator, mine.adv_norm, mine.mask_no_eos_with_zero = KLEstimator("k1"), None, False
    mine.discount = mine.gae_lambda = 1.0
    rows = []
    for batch in mine.compute_advantages(groups):
        columns = (batch[name].tolist() for name in ("input_ids", "loss_mask", "logprobs", "advantages"))
        for ids, *values in zip(*columns, strict=True):
            values[2] += [0.0] * (len(ids) - len(values[2]))
            rows.append(as_row(ids, *([0, *column[:-1]] for column in values)))
    return rows


async def test_each_token_has_its_mask_logprob_and_the_rollouts_advantage():
    single = [one for n in range(GROUPS) for one in rollouts(n) if len(one[0]) == 1]
    groups = [single[n : n + SIZE] for n in range(0, len(single) - SIZE + 1, SIZE)]
    found = await read(Given(single), None, [{}] * len(groups))
    assert found == [row for group in groups for row in truth(group)]


async def test_an_item_without_a_task_is_refused():
    from areal.api.cli_args import GenerationHyperparameters

    from envs.trainers.areal import AtroposWorkflow

    with pytest.raises(ValueError, match="has None as its `task`: give the id"):
        await AtroposWorkflow("sums:Sums", [], GenerationHyperparameters()).arun_episode(None, {"id": "sum-3"})


def test_a_wrong_option_ends_the_trainer_before_an_episode():
    from areal.api.cli_args import GenerationHyperparameters

    from envs.trainers.areal import AtroposWorkflow

    with pytest.raises(ValueError, match=r"leave out --env\.estimator: areal makes the advantages itself"):
        AtroposWorkflow("sums:Sums", ["--env.estimator=none"], GenerationHyperparameters())


async def test_a_failure_leaves_the_whole_group_out(monkeypatch):
    from areal.infra import workflow_executor as executor
    from areal.infra.remote_inf_engine import GroupedRolloutWorkflow

    class Failing:
        async def arun_episode(self, engine, data):
            data["number"] += 1
            if data["number"] == 2:
                raise InfraError(Failure.TOKENS, "the daemon is away")
            return {}

    rejected = []
    mine = object.__new__(executor.WorkflowExecutor)
    mine.config, mine.inference_engine, mine.logger = None, None, logging.getLogger("areal")
    monkeypatch.setattr(
        executor.WorkflowExecutor,
        "staleness_manager",
        SimpleNamespace(on_rollout_rejected=lambda: rejected.append(1)),
        raising=False,
    )
    grouped = GroupedRolloutWorkflow(Failing(), SIZE, mine.logger)
    asked = executor._RolloutTaskInput(task_id=0, data={"number": 0}, workflow=grouped)
    assert await mine._create_workflow_task(asked)() is None
    assert rejected == [1]


class Engine:
    """Plays AReaL's inference engine."""

    def __init__(self, tokenizer):
        self.policy = Policy(tokenizer)

    async def agenerate(self, request):
        from areal.api import ModelResponse

        assert (request.gconfig.temperature, request.gconfig.n_samples, request.gconfig.lora_name) == (0.9, 1, "mine")
        ids, logprobs = self.policy.reply(request.input_ids)
        return ModelResponse(request.input_ids, ids, logprobs, [3] * (len(ids) - 1) + [4], "stop")


async def test_the_workflow_makes_rollouts_with_areals_engine(smollm2_tokenizer, tokenizer_folder, tmp_path):
    from areal.api.cli_args import GenerationHyperparameters

    from envs.trainers.areal import AtroposWorkflow

    gconfig = GenerationHyperparameters(n_samples=SIZE, temperature=0.9, lora_name="mine")
    options = [f"--env.run_dir={tmp_path}", f"--env.tokenizer_name={tokenizer_folder}"]
    workflow, engine = AtroposWorkflow("sums:Sums", options, gconfig), Engine(smollm2_tokenizer)
    try:
        one = await workflow.arun_episode(engine, {"task": "sum-3"})
        rows = await read(workflow, engine, [{"task": "sum-3"}])
    finally:
        await close(workflow._mine)
        AtroposWorkflow._clients.clear()
    assert (one["versions"] == 3).equal(one["loss_mask"] == 1) and (one["versions"] == -1).equal(one["loss_mask"] == 0)
    assert len(rows) == SIZE


def test_areals_data_loader_executor_and_client_of_sglang_make_a_batch(
    smollm2_tokenizer, tokenizer_folder, tmp_path, httpserver
):
    """As PPOTrainer asks for it, in AReaL's threads; the workflow is given by its name."""
    from areal.api.cli_args import GenerationHyperparameters, InferenceEngineConfig, TrainDatasetConfig
    from areal.engine.sglang_remote import RemoteSGLangEngine
    from areal.utils.dataloader import create_dataloader

    from envs.trainers.areal import AtroposWorkflow

    policy = Policy(smollm2_tokenizer)
    serve_sglang(httpserver, policy)
    items = [{"task": f"sum-{n}"} for n in range(4)]
    loader = create_dataloader(items, 0, 1, TrainDatasetConfig(path="", type="rl", batch_size=2))
    told = {
        "environment": "sums:Sums",
        "options": [f"--env.run_dir={tmp_path}", f"--env.tokenizer_name={tokenizer_folder}"],
        "gconfig": GenerationHyperparameters(n_samples=SIZE, temperature=0.9),
    }
    engine = RemoteSGLangEngine(
        InferenceEngineConfig(
            backend="sglang:d1", consumer_batch_size=2, check_trajectory_format=True, fileroot=str(tmp_path)
        )
    )
    engine.initialize(addr=f"{httpserver.host}:{httpserver.port}", train_data_parallel_size=1)
    engine.set_version(3)
    try:
        groups = engine.prepare_batch(
            loader, workflow="envs.trainers.areal.AtroposWorkflow", workflow_kwargs=told, group_size=SIZE
        )
    finally:
        engine.destroy()
        AtroposWorkflow._clients.clear()
    assert list(tmp_path.glob("*/metrics.json")), "the run was closed with AReaL's event loop"
    assert all((group["versions"] == 3).equal(group["loss_mask"] == 1) for group in groups)
    rows = as_rows(groups)
    assert len(rows) == 2 * SIZE
    assert all(policy.sampled(row) for row in rows)
