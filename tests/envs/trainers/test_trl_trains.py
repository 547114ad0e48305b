"""TRL's own trainers take what they are given: steps on a CPU with a network of no use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envs.running.group import fates
from envs.trainers.trl import given_reward
from envs.trainers.trl_grpo import RolloutFunction

trl = pytest.importorskip("trl", reason="trl is not installed")

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore"),  # of TRL and what it imports
]


def test_grpo_trainer_takes_a_row_for_each_prompt_and_goes_on_from_its_checkpoint(
    make_env: Any, tokenizer_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    async def made() -> Any:
        return make_env(equal_rewards="send")

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder, padding_side="left")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tasks = Dataset.from_list([{"prompt": f"sum-{number}"} for number in range(6)])
    versions: list[int] = []

    def train(steps: int) -> Any:
        args = trl.GRPOConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=steps,
            save_steps=1,
            per_device_train_batch_size=4,
            num_generations=2,
            use_cpu=True,
            bf16=False,
            report_to="none",
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
        )
        with RolloutFunction(made, tmp_path / "out", engine_url, tmp_path) as function:
            monkeypatch.setattr(function._weights, "load", lambda version, save: versions.append(version))
            trainer = trl.GRPOTrainer(
                model=LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)),
                args=args,
                reward_funcs=given_reward,
                train_dataset=tasks,
                processing_class=tokenizer,
                callbacks=[function.callback],
                rollout_func=function,
            )
            trainer.train(resume_from_checkpoint=function.checkpoint)
            return trainer.state

    engine_url = "http://127.0.0.1:9"
    assert train(2).global_step == 2
    assert train(3).global_step == 3
    assert versions == [0, 1, 2]
    found = list(fates(tmp_path / "run"))
    assert [fate.state for fate in found] == ["confirmed"] * 6, "two groups a step, each confirmed"
