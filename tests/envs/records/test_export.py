"""Rows in other trainers' formats say what the group said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from samples import group
from transformers import LlamaConfig, LlamaForCausalLM

from envs.records.export import trl_rows, verl_rows

GROUP: dict[str, Any] = group() | {"generation_params": {"group_id": "g", "rollout_ids": ["a", "b", "c", "d"]}}


@pytest.mark.parametrize("place", range(4))
def test_prompt_and_completion_together_are_the_row(place: int) -> None:
    row = list(trl_rows(GROUP))[place]
    assert row["prompt_ids"] + row["completion_ids"] == GROUP["tokens"][place]
    start = len(row["prompt_ids"])
    for i, own in enumerate(row["env_mask"]):
        label, logprob = GROUP["masks"][place][start + i], GROUP["inference_logprobs"][place][start + i]
        assert (label != -100) == bool(own)
        assert row["logprobs"][i] == (logprob if own else 0.0)
    assert row["env_mask"][0] == 1
    assert row["reward"] == GROUP["scores"][place]


def test_both_formats_say_the_same() -> None:
    for one, other in zip(trl_rows(GROUP), verl_rows(GROUP), strict=True):
        assert one["completion_ids"] == other["response_ids"]
        assert one["env_mask"] == other["response_mask"]
        assert one["logprobs"] == other["response_logprobs"]
        assert (other["uid"], other["num_turns"]) == ("g", 1)


def test_datasets_take_the_rows() -> None:
    datasets = pytest.importorskip("datasets")
    loaded = datasets.Dataset.from_list(list(trl_rows(GROUP)))
    assert loaded[0]["completion_ids"] == next(iter(trl_rows(GROUP)))["completion_ids"]


def test_verls_own_type_takes_the_rows() -> None:
    agent_loop = pytest.importorskip("verl.experimental.agent_loop.agent_loop", reason="verl is not installed")
    for row in verl_rows(GROUP):
        fields = {name: value for name, value in row.items() if name != "uid"}
        assert agent_loop.AgentLoopOutput(**fields, metrics={}).response_ids == row["response_ids"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a library that is not ours
def test_trl_trains_on_the_rows(tmp_path: Path, smollm2_tokenizer: Any) -> None:
    trl = pytest.importorskip("trl", reason="trl is not installed")
    datasets = pytest.importorskip("datasets")
    rows = list(trl_rows(GROUP))

    def rollouts(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        return {name: [row[name] for row in rows] for name in rows[0]}

    def rewards(reward: list[float], **kwargs: Any) -> list[float]:
        return reward

    network = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(smollm2_tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
        )
    )
    before = [value.clone() for value in network.parameters()]
    trainer = trl.GRPOTrainer(
        model=network,
        reward_funcs=rewards,
        args=trl.GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=len(rows),
            num_generations=len(rows),
            max_steps=1,
            logging_steps=1,
            learning_rate=0.1,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
        ),
        train_dataset=datasets.Dataset.from_list([{"prompt": "x"}] * len(rows)),
        processing_class=smollm2_tokenizer,
        rollout_func=rollouts,
    )
    trainer.train()
    logged = trainer.state.log_history[0]
    assert logged["reward"] == pytest.approx(sum(GROUP["scores"]) / len(rows))
    sampled = [sum(row["env_mask"]) for row in rows]
    assert logged["completions/mean_length"] == pytest.approx(sum(sampled) / len(rows)), "sampled tokens alone count"
    assert any((old != new).any() for old, new in zip(before, network.parameters(), strict=True))
