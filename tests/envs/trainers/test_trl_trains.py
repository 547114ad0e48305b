"""TRL's own trainers take what they are given: steps on a CPU with a network of no use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.running.group import group_outcomes
from envs.trainers.checkpoints import newest_checkpoint
from envs.trainers.ledger import Ledger
from envs.trainers.trl_grpo import RolloutFunction, given_reward

trl = pytest.importorskip("trl", reason="trl is not installed")

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),  # of TRL and what it imports
]


STEPS, RESTORED = 4, {"restore_callback_states_from_checkpoint": True}


@pytest.mark.parametrize(
    ("generation", "more"),
    [
        (1, {**RESTORED, "eval_strategy": "steps", "eval_steps": 1, "num_generations_eval": 1, "loss_type": "dr_grpo"}),
        (2, {"num_iterations": 2, "save_steps": 2, "eval_strategy": "steps", "eval_steps": 1}),
        (2, {"steps_per_generation": 2, "save_steps": 2, "mask_truncated_completions": True}),
        (1, {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "importance_sampling_level": "sequence"}),
    ],
    ids=["restored", "iterated", "split", "accumulated"],
)
def test_grpo_trainer_takes_a_row_for_each_prompt_and_goes_on_from_its_checkpoint(
    generation: int,
    more: dict[str, Any],
    make_env: Any,
    tokenizer_folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """generation: the steps for which it is trained on."""
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    async def made() -> Any:
        return make_env(equal_rewards="send")

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder, padding_side="left")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tasks = Dataset.from_list([{"prompt": f"sum-{number}"} for number in range(4)])
    versions: list[int] = []

    def train(steps: int) -> Any:
        settings = {
            "save_steps": 1,
            "per_device_train_batch_size": 4,
            "per_device_eval_batch_size": 4,
            "num_generations": 2,
            "use_cpu": True,
            "bf16": False,
            "report_to": "none",
            "gradient_checkpointing": False,
            "dataloader_pin_memory": False,
            "disable_tqdm": True,
        }
        args = trl.GRPOConfig(output_dir=str(tmp_path / "out"), max_steps=steps, **settings | more)
        with RolloutFunction(made, args, engine_url, tmp_path) as function:
            monkeypatch.setattr(function._weights, "load", lambda version, save: versions.append(version))
            trainer = trl.GRPOTrainer(
                model=LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)),
                args=args,
                reward_funcs=given_reward,
                train_dataset=tasks,
                eval_dataset=tasks,
                processing_class=tokenizer,
                callbacks=[function],
                rollout_func=function,
            )
            trainer.train(resume_from_checkpoint=function.checkpoint)
            return trainer.state

    engine_url = "http://127.0.0.1:9"
    assert train(STEPS // 2).global_step == STEPS // 2
    assert train(STEPS).global_step == STEPS
    assert versions == sorted(versions) and set(range(0, STEPS, generation)) <= set(versions)
    found = list(group_outcomes(tmp_path / "run"))
    assert "taken" not in {outcome.state for outcome in found}
    batches = STEPS // generation * more.get("gradient_accumulation_steps", 1) * more.get("steps_per_generation", 1)
    _, ours = newest_checkpoint(tmp_path / "out")
    assert len(Ledger(ours["trained"]).trained) == 2 * batches, (
        "each group of two rollouts, whatever its evaluations are"
    )
