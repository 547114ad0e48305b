"""SkyRL's own checks, batch and advantages on our rollouts.

It wants Python 3.12: `pip install 'skyrl[skyrl-train]'`."""

import json
from types import SimpleNamespace

import pytest
from played import GROUPS, Policy, as_row, close, rollouts, truth
from werkzeug import Response

from envs.delivery.exports import tinker_rows
from envs.delivery.worth import Loss
from envs.types import InfraError

trainer = pytest.importorskip("skyrl.train.trainer", reason="SkyRL is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")  # SkyRL's


def read(output, cfg=None):
    """SkyRL's rows after its own steps, in the form of `truth`. Its model's logprobs of a response are those of the
    last places."""
    cfg = cfg or config()
    trainer.validate_generator_output(0, output, step_wise=True)
    mine = object.__new__(trainer.RayPPOTrainer)
    mine.cfg, mine.all_metrics, mine.tokenizer = cfg, {}, SimpleNamespace(pad_token_id=0)
    mine.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 3)
    uids = [one.instance_id for one in output["trajectory_ids"]]
    output, uids = mine.postprocess_generator_output(output, uids)
    cfg.trainer.train_batch_size = cfg.trainer.policy_mini_batch_size = len(set(uids))
    batch = mine.convert_to_training_input(output, uids)
    batch["values"] = None
    batch = mine.compute_advantages_and_returns(batch)
    columns = (batch[name].tolist() for name in ("loss_mask", "rollout_logprobs", "advantages"))
    found = []
    for ids, seen, *values in zip(batch["sequences"].tolist(), batch["attention_mask"].tolist(), *columns, strict=True):
        filled = [[0] * (len(ids) - len(column)) + column for column in values]
        places = [place for place, there in enumerate(seen) if there]
        found.append(as_row(*([column[place] for place in places] for column in (ids, *filled))))
    return [row for row in found if row]  # the rest fills the batch up


def config():
    cfg = trainer.SkyRLTrainConfig()
    cfg.generator.step_wise_trajectories, cfg.trainer.algorithm.grpo_norm_by_std = True, False
    cfg.trainer.critic.model.path = None
    return cfg


def test_each_token_has_its_mask_logprob_and_the_rollouts_advantage():
    from skyrl.train.generators.base import TrajectoryID

    from envs.trainers.skyrl import make_output

    groups = {n: rollouts(n) for n in range(GROUPS) if sum(bool(rows) for rows, _ in rollouts(n)) > 1}
    names = [TrajectoryID(f"p{n}", place) for n, found in groups.items() for place in range(len(found))]
    output = make_output(names, [one for found in groups.values() for one in found])
    assert read(output) == [row for found in groups.values() for row in truth(found)]


def test_a_prompt_without_any_row_is_an_error():
    from envs.trainers.skyrl import make_output

    with pytest.raises(InfraError, match="no rollout of prompt p0 has a row"):
        make_output([SimpleNamespace(instance_id="p0")], [((), False)])


def test_its_server_for_tinkers_api_trains_our_sampled_tokens_alone():
    api = pytest.importorskip("skyrl.tinker.api", reason="SkyRL's server is not installed")
    from skyrl.tinker.engine import prepare_model_pass_batch

    found = [one for number in range(GROUPS) for one in rollouts(number) if one[0]]
    rows = [row for one, _ in found for row in one]
    asked = {"data": [], "loss_fn": "importance_sampling"}
    for line in tinker_rows(rows):
        inputs = {{"mask": "weights"}.get(name, name): value for name, value in line["loss_fn_inputs"].items()}
        asked["data"].append({"model_input": line["model_input"], "loss_fn_inputs": inputs})
    given = api.ForwardBackwardInput.model_validate(asked)
    batch = prepare_model_pass_batch({"r": ("m", given.to_types())})
    columns = (batch.all_token_weights, batch.all_sampling_logprobs, batch.all_advantages)
    read = [
        as_row([*chunks.chunks[0].tokens, targets[-1]], *([0, *column] for column in values))
        for chunks, targets, *values in zip(batch.all_model_inputs, batch.all_targets, *columns, strict=True)
    ]
    wanted = [as_row(row.tokens, row.sampled, row.logprobs, row.advantages(Loss.TOKENS)) for row in rows]
    assert read == wanted


async def test_a_step_of_skyrls_trainer_from_its_data_loader_to_its_advantages(
    smollm2_tokenizer, tokenizer_folder, tmp_path, httpserver
):
    """Its client asks a server, which is played."""
    from skyrl.backends.skyrl_train.inference_servers.engine_utils import get_vllm_sampling_params
    from skyrl.backends.skyrl_train.inference_servers.remote_inference_client import RemoteInferenceClient
    from skyrl.train.dataset import PromptDataset
    from skyrl.train.generators.utils import prepare_generator_input
    from skyrl.train.utils.trainer_utils import build_dataloader

    from envs.trainers.skyrl import AtroposGenerator

    cfg, policy = config(), Policy(smollm2_tokenizer)
    cfg.generator.sampling_params.max_generate_length = 64
    cfg.generator.inference_engine.served_model_name = "policy"
    cfg.trainer.train_batch_size, cfg.data.dataloader.num_workers = 2, 0

    def sample(request):
        asked = request.json
        assert (asked["model"], asked["sampling_params"]["max_tokens"]) == ("policy", 64)
        ids, logprobs = policy.reply(asked["token_ids"])
        content = [{"logprob": value} for value in logprobs]
        choice = {"token_ids": ids, "logprobs": {"content": content}, "finish_reason": "stop"}
        return Response(json.dumps({"choices": [choice]}), mimetype="application/json")

    httpserver.expect_request("/inference/v1/generate").respond_with_handler(sample)
    url, data = httpserver.url_for(""), tmp_path / "prompts.jsonl"
    lines = [{"prompt": [{"role": "user", "content": "unused"}], "task": f"sum-{n}"} for n in (3, 4)]
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (prompts,) = build_dataloader(cfg, PromptDataset(str(data), smollm2_tokenizer, 512, num_workers=1))
    sampling = get_vllm_sampling_params(cfg.generator.sampling_params)
    given, _ = prepare_generator_input(prompts, 3, sampling, "atropos", "train", 1)
    client = RemoteInferenceClient(url, [url], 1, tokenizer=smollm2_tokenizer)
    client.increment_weight_version()
    named, options = SimpleNamespace(name_or_path=tokenizer_folder), [f"--env.run_dir={tmp_path}"]
    mine = object.__new__(trainer.RayPPOTrainer)
    mine.cfg, mine.all_metrics = cfg, {}
    mine.generator = AtroposGenerator(cfg, named, client, "sums:Sums", options)
    try:
        output = await mine.generate(given)
    finally:
        await close(mine.generator._clients)
        await client.teardown()
    assert set(output["rewards"]) <= {0.0, 1.0}
    rows = read(output, cfg)
    assert len(rows) == 6
    assert all(policy.sampled(row) for row in rows)


async def test_a_prompt_without_a_task_is_refused():
    from envs.trainers.skyrl import AtroposGenerator

    generator = object.__new__(AtroposGenerator)
    batch = {"sampling_params": None, "batch_metadata": None, "env_extras": [{"id": "sum-3"}], "trajectory_ids": []}
    with pytest.raises(ValueError, match="has None as its column `task`: give the id"):
        await generator.generate(batch)


def test_a_configuration_of_one_row_a_rollout_is_refused():
    from envs.trainers.skyrl import AtroposGenerator

    cfg = SimpleNamespace(generator=SimpleNamespace(step_wise_trajectories=False))
    with pytest.raises(ValueError, match=r"set generator\.step_wise_trajectories=true"):
        AtroposGenerator(cfg, None, None, "sums:Sums")
