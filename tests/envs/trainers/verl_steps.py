"""Steps of verl's own on a CPU, without Ray: `python verl_steps.py OUT STEPS`. Prints a line of JSON a step.

Its AgentLoopWorker runs our loops, by a client of the embedded server in the place of verl's; its GRPO estimator, FSDP2
engine and ppo_loss take the steps.
"""

import asyncio
import json
import os
import sys
import time
from functools import partial
from pathlib import Path

os.environ |= {
    **{"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"},
    **{"HF_HUB_OFFLINE": "1", "VERL_ENGINE_DEVICE": "cpu", "VERL_LOGGING_LEVEL": "ERROR"},
    "TOKENIZERS_PARALLELISM": "false",
}
import verl_on_cpu  # noqa: F401, I001 - before anything of verl asks for a platform
import httpx
import numpy as np
import torch
import verl.workers.engine.fsdp.transformer_impl as fsdp
from hydra import compose, initialize_config_module
from lesson import Lesson
from safetensors.torch import save_file
from verl import DataProto
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.core_algos import AdvantageEstimator
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils import tensordict_utils as tu
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.config import TrainingWorkerConfig
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine_workers import TrainingWorker
from verl.workers.rollout.replica import TokenOutput
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

from atropos_agent.cpu_engine.model import DEFAULT_CACHE
from envs.lab import smoke
from envs.lab.parts import Parts, free_port, wait_until_healthy

torch.set_num_threads(1)
GROUPS, SIZE = 2, 4
FSDP = "actor_rollout_ref.actor.fsdp_config"
OVERRIDES = [
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.prompt_length=640",
    "actor_rollout_ref.rollout.response_length=1024",
    f"actor_rollout_ref.rollout.n={SIZE}",
    "actor_rollout_ref.rollout.calculate_log_probs=True",
    "actor_rollout_ref.model.use_remove_padding=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
    "actor_rollout_ref.actor.optim.lr=1e-4",
    "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.actor.use_kl_loss=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "trainer.device=cpu",
    f"{FSDP}.model_dtype=fp32",
    f"{FSDP}.dtype=float32",
    "actor_rollout_ref.actor.use_torch_compile=False",
    f"{FSDP}.use_torch_compile=False",
    # bf16 autocast otherwise, whatever `dtype` says.
    f"+{FSDP}.mixed_precision={{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}}",
]


class Client:
    """Stands in for verl's LLMServerClient, which samples by way of Ray: the embedded server's completions."""

    def __init__(self, engine):
        self.http = httpx.AsyncClient(base_url=engine, timeout=300)
        self.sessions = {}

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        self.sessions.setdefault(request_id, []).append(len(prompt_ids))
        body = {name: sampling_params[name] for name in ("max_tokens", "temperature", "top_p")}
        body |= {"prompt": prompt_ids, "logprobs": 0, "return_token_ids": True}
        choice = (await self.http.post("/v1/completions", json=body)).raise_for_status().json()["choices"][0]
        version = choice.get("weight_version", 0)
        return TokenOutput(
            token_ids=choice["token_ids"],
            log_probs=choice["logprobs"]["token_logprobs"],
            stop_reason="completed",
            extra_fields=dict.fromkeys(("global_steps", "min_global_steps", "max_global_steps"), version),
        )


def configured(model, out):
    options = ["--env.max_steps=2", "--env.max_reply_tokens=48", "--env.max_token_length=1024", "--env.group_size=4"]
    options += ["--env.max_concurrent_rollouts=8", f"--env.run_dir={out / 'runs'}"]
    loop = {"name": "atropos", "_target_": "envs.trainers.verl.AtroposLoop", "environment": "lesson:Lesson"}
    path = out / "loops.yaml"  # of which JSON is a part
    path.write_text(json.dumps([{**loop, "options": options}]))
    agent = f"actor_rollout_ref.rollout.agent.agent_loop_config_path={path}"
    with initialize_config_module(config_module="verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[f"actor_rollout_ref.model.path={model}", agent, *OVERRIDES])


def trainer_of(config):
    EngineRegistry.register(model_type="language_model", backend=["fsdp", "fsdp2"], device="cpu")(
        fsdp.FSDPEngineWithLMHead
    )
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    actor.model_config = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    told = TrainingWorkerConfig(
        model_type="language_model",
        model_config=actor.model_config,
        engine_config=actor.engine,
        optimizer_config=actor.optim,
        checkpoint_config=actor.checkpoint,
    )
    engine = told.engine_config
    engine.use_dynamic_bsz, engine.infer_micro_batch_size_per_gpu, engine.micro_batch_size_per_gpu = False, 8, 8
    engine.infer_max_token_len_per_gpu = engine.max_token_len_per_gpu = 65536
    trainer = TrainingWorker(config=told)
    trainer.reset()
    trainer.set_loss_fn(partial(ppo_loss, config=actor))
    return trainer


def objects(values):
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found


def batch_of(tasks, step):
    columns = {
        "raw_prompt": objects([[{"role": "user", "content": task.instruction}] for task in tasks]),
        "extra_info": objects([{"task": task.id} for task in tasks]),
        "uid": objects([task.id for task in tasks]),
        "index": np.arange(len(tasks)),
        "agent_name": objects(["atropos"] * len(tasks)),
        "reward_model": objects([{}] * len(tasks)),
        "data_source": objects(["atropos"] * len(tasks)),
    }
    return DataProto.from_single_dict(columns, meta_info={"global_steps": step, "validate": False})


def train(trainer, got):
    """Take a step of verl's. Returns its metrics, and how much its logprobs differ from the sampled ones."""
    scores = got.batch["rm_scores"]
    got.batch["token_level_scores"] = got.batch["token_level_rewards"] = scores
    td = left_right_2_no_padding(got.to_tensordict())
    tu.assign_non_tensor(td, calculate_entropy=True, compute_loss=False, temperature=1.0)
    old = no_padding_2_padding(tu.get(trainer.infer_batch(td), "log_probs"), td).float()
    got.batch["old_log_probs"] = old
    mask = got.batch["response_mask"].bool()
    differs = (old - got.batch["rollout_log_probs"]).abs()[mask]
    got = compute_advantage(got, AdvantageEstimator.GRPO, norm_adv_by_std_in_grpo=False)
    td = left_right_2_no_padding(got.to_tensordict())
    tu.assign_non_tensor(
        td,
        calculate_entropy=True,
        distillation_use_topk=False,
        distillation_only=False,
        global_batch_size=GROUPS * SIZE,
        mini_batch_size=GROUPS * SIZE,
        epochs=1,
        seed=0,
        dataloader_kwargs={"shuffle": False},
        compute_loss=True,
        temperature=1.0,
    )
    metrics = tu.get(trainer.train_mini_batch(td), "metrics")
    first = {name: value[0] if isinstance(value, list) else value for name, value in metrics.items()}
    plain = {name: float(v.aggregate() if hasattr(v, "aggregate") else v) for name, v in first.items()}
    return plain, float(differs.mean()), float(differs.max())


async def main(out, steps):
    os.environ["MASTER_PORT"] = str(free_port())
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)  # verl would ask for a backend twice
    out.mkdir(parents=True, exist_ok=True)
    model = smoke.model(DEFAULT_CACHE)
    async with Parts(out) as parts:
        engine = await parts.engine(str(model), "--max-model-len", "1024")
        await parts.alongside(wait_until_healthy(engine))
        await parts.alongside(take(steps, engine.removesuffix("/v1"), model, out))


async def take(steps, engine, model, out):
    config, client = configured(model, out), Client(engine)
    trainer, worker = trainer_of(config), AgentLoopWorker(config, client)
    tasks, _ = Lesson.load_tasks(None)
    for step in range(steps):
        chosen = [tasks[(step * GROUPS + n) % len(tasks)] for n in range(GROUPS) for _ in range(SIZE)]
        batch, began = batch_of(chosen, step), time.monotonic()
        got = await worker.generate_sequences(batch)
        rolled = time.monotonic() - began
        got.non_tensor_batch.setdefault("uid", batch.non_tensor_batch["uid"])
        metrics, mean, most = train(trainer, got)
        told = {"step": step, "reward": float(got.batch["rm_scores"].sum(1).mean()), "rows": len(got)}
        told |= {"trained": int(got.batch["response_mask"].sum()), "differs": mean, "most": most}
        told |= {"versions": sorted({int(v) for v in got.non_tensor_batch["min_global_steps"]})}
        told |= {"turns": max(map(len, client.sessions.values())), "sessions": len(client.sessions)}
        told |= {"loss": metrics.get("actor/pg_loss"), "grad": metrics.get("grad_norm"), "rollout_s": rolled}
        print(json.dumps(told), flush=True)
        await hand_over(trainer, out / f"step-{step + 1}", model, client.http, step + 1)


async def hand_over(trainer, folder, model, http, version):
    folder.mkdir(exist_ok=True)
    named, _ = trainer.engine.get_per_tensor_param()
    tensors = {name: value.detach().cpu().clone().contiguous() for name, value in named}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_bytes((model / "config.json").read_bytes())
    (await http.post("/load_weights", json={"path": str(folder), "version": version})).raise_for_status()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]).resolve(), int(sys.argv[2])))
