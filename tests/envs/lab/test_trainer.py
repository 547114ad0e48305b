"""The example trainer: what it makes of a batch, its loss by hand, and its loop on real parts."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from embedded_engine import engine
from run_api import RunAPI
from transformers import LlamaConfig, LlamaForCausalLM

from atropos_agent.cpu_engine import lora
from envs.lab import trainer
from envs.records import disk

# peft 0.21 asks transformers 5 by a name that the latter renames in version 6.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")


def group(
    rows: list[tuple[str, float, list[int], list[int]]], *, versions: list[int | None] | None = None, **more: Any
) -> dict[str, Any]:
    """A group of (rollout, reward, context ids, sampled ids) with logprobs of -0.5."""
    return {
        "tokens": [context + sampled for _, _, context, sampled in rows],
        "masks": [[-100] * len(context) + sampled for _, _, context, sampled in rows],
        "scores": [reward for _, reward, _, _ in rows],
        "inference_logprobs": [[1.0] * len(context) + [-0.5] * len(sampled) for _, _, context, sampled in rows],
        "advantages": None,
        "generation_params": {
            "rollout_ids": [name for name, _, _, _ in rows],
            "policy_versions": versions or [0] * len(rows),
            "temperature": 1.0,
        },
    } | more


TWO = [("a", 1.0, [5, 6], [7, 8]), ("b", 0.0, [5, 6], [9, 9, 9, 9])]


def test_it_is_short() -> None:
    assert len(Path(trainer.__file__).read_text().splitlines()) < 400


def test_advantages_are_relative_to_the_group_and_each_rollout_weighs_the_same() -> None:
    rows, left_out = trainer.rows_of([group(TWO)], step=0, max_lag=4)
    assert [row.advantages for row in rows] == [[1 / (2 * 2)] * 2, [-1 / (2 * 4)] * 4]
    assert [row.logprobs for row in rows] == [[-0.5] * 2, [-0.5] * 4]
    assert not left_out


def test_the_baseline_counts_a_rollout_of_two_rows_once() -> None:
    split = [("a", 1.0, [5, 6], [7, 8]), ("a", 1.0, [5], [3, 4]), *TWO[1:]]
    rows, _ = trainer.rows_of([group(split)], step=0, max_lag=4)
    assert [sum(row.advantages) for row in rows] == pytest.approx([0.25, 0.25, -0.5])


def test_given_advantages_are_used_as_they_are() -> None:
    given = [[0.0, 0.0, 0.3, 0.3], [0.0, 0.0, -0.6, -0.6, -0.6, -0.6]]
    rows, _ = trainer.rows_of([group(TWO, advantages=given)], step=0, max_lag=4)
    assert [sum(row.advantages) for row in rows] == pytest.approx([0.3 / 2, -0.6 / 2])


def test_advantages_below_zero_weigh_what_they_are_told_to_whoever_has_made_them() -> None:
    given = [[0.0, 0.0, 0.4, -0.4], [0.0, 0.0, -0.6, -0.6, -0.6, -0.6]]
    for brought in (given, None):
        rows, left_out = trainer.rows_of([group(TWO, advantages=brought)], step=0, max_lag=4, negative=0.0)
        assert [min(row.advantages) >= 0 for row in rows] == [True]
        assert left_out == {"no signal": 1}


def test_rows_that_teach_nothing_or_the_wrong_thing_are_left_out_and_counted() -> None:
    equal = group([("c", 1.0, [5], [7]), ("d", 1.0, [5], [8])], versions=[7, 7])
    old = group(TWO, versions=[1, 6])
    bad = group(TWO)
    bad["inference_logprobs"][0][-1] = None
    rows, left_out = trainer.rows_of([equal, old, bad], step=7, max_lag=4)
    assert [(row.tokens, row.lag) for row in rows] == [(TWO[1][2] + TWO[1][3], 1)]
    assert left_out == {"no signal": 2, "stale": 1, "invalid": 2}


def test_without_versions_the_age_is_that_of_the_group() -> None:
    dated = group(TWO)
    dated["generation_params"] = {"rollout_ids": ["a", "b"], "step": 5}
    rows, _ = trainer.rows_of([dated], step=7, max_lag=4)
    assert [row.lag for row in rows] == [2, 2]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        initializer_range=0.5,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "small")
    return tmp_path / "small"


def test_the_gradient_is_that_of_the_clipped_objective(small: Path, tmp_path: Path) -> None:
    options = trainer.parse(["--model", str(small), "--out", str(tmp_path / "out"), "--part-tokens", "5"])
    policy = trainer.Policy(options, None)
    rows, _ = trainer.rows_of([group(TWO)], step=0, max_lag=4)
    policy.optimizer = torch.optim.SGD(policy.parameters, lr=0.0)  # keeps the gradient to look at
    options.max_grad_norm = math.inf
    figures = policy.update(rows)
    got = policy.network.model.layers[0].mlp.up_proj.weight.grad.clone()
    policy.network.zero_grad()
    losses = []
    for (_, reward, context, sampled), _ in zip(TWO, rows, strict=True):
        logits = policy.network(torch.tensor([context + sampled])).logits[0].log_softmax(-1)
        logprobs = torch.stack([logits[len(context) - 1 + i, token] for i, token in enumerate(sampled)])
        ratio = torch.exp(logprobs + 0.5)
        advantage = 1.0 if reward else -1.0
        losses.append(-torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.28) * advantage).mean())
    torch.stack(losses).mean().backward()
    assert torch.allclose(got, policy.network.model.layers[0].mlp.up_proj.weight.grad, atol=1e-6)
    assert figures["trained_tokens"] == figures["fresh_tokens"] == 6
    assert figures["mismatch"] == figures["mismatch_fresh"] > 0.1


def test_with_products_of_16_bits_weights_and_figures_stay_in_32(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lora, "_multiplies_16_bits", lambda: True)
    rows, _ = trainer.rows_of([group(TWO)], step=0, max_lag=4)
    found = []
    for more in ([], ["--autocast"]):
        options = trainer.parse(["--model", str(small), "--out", str(tmp_path / "out"), *more])
        policy = trainer.Policy(options, None)
        found.append(policy.update(rows)["logprob"])
        assert {p.dtype for p in policy.parameters} == {p.grad.dtype for p in policy.parameters} == {torch.float32}
    assert found[0] != found[1] and found[0] == pytest.approx(found[1], abs=0.05)


def test_a_checkpoint_does_not_ask_for_our_attention(small: Path, tmp_path: Path) -> None:
    policy = trainer.Policy(trainer.parse(["--model", str(small), "--out", str(tmp_path / "out")]), None)
    policy.update(trainer.rows_of([group(TWO)], step=0, max_lag=4)[0])
    policy.save(tmp_path / "step-000001", {})
    assert "row_by_row" in repr(policy.network.config._attn_implementation)
    assert "row_by_row" not in (tmp_path / "step-000001/config.json").read_text()


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = trainer.Policy(trainer.parse(["--model", str(small), "--out", str(tmp_path / "out")]), None)
    flushed, folder = set[str](), tmp_path / "step-000001"

    def fsync(number: int) -> None:
        assert not folder.exists()
        flushed.add(Path(f"/proc/self/fd/{number}").readlink().name)

    monkeypatch.setattr(disk.os, "fsync", fsync)
    policy.save(folder, {})
    assert flushed == {path.name for path in folder.iterdir()} > {"model.safetensors", "optimizer.pt", "state.json"}


def test_atropos_own_example_trainer_takes_the_same_batch(small: Path) -> None:
    """Its ratio is 1 where the logprobs are those of the weights, so masks and logprobs are read as meant."""
    data = pytest.importorskip("example_trainer.data")
    training = pytest.importorskip("example_trainer.training")
    network = LlamaForCausalLM.from_pretrained(small)
    made = group(TWO, overrides=None, group_overrides=None)
    for place, (_, _, context, sampled) in enumerate(TWO):
        logprobs = network(torch.tensor([context + sampled])).logits[0].log_softmax(-1)
        own = [float(logprobs[len(context) - 1 + i, token].detach()) for i, token in enumerate(sampled)]
        made["inference_logprobs"][place] = [1.0] * len(context) + own
    read = data.pad_data_to_good_offset({"batch": [made]}, 2)
    tokens, labels, advantages, temperatures, inference = (parts[0] for parts in read)
    loss, figures = training.compute_grpo_loss(network, tokens, labels, advantages, temperatures, 1, inference)
    assert figures["mean_ratio"] == pytest.approx(1.0, abs=1e-4)
    assert figures["logprob_diff_max"] < 1e-4
    loss.backward()


class Environment:
    """The least of one: groups of four samples of the engine, the longer the better."""

    def __init__(self, api: str, engine: str) -> None:
        self._api = httpx.AsyncClient(base_url=api, timeout=30)
        self._engine = httpx.AsyncClient(base_url=engine, timeout=60)
        self._made = 0

    async def __aenter__(self) -> Environment:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._api.aclose()
        await self._engine.aclose()

    async def group(self) -> dict[str, Any]:
        prompt = [11, 12, 13, 14 + self._made]
        body = {"prompt": prompt, "n": 4, "max_tokens": 8, "logprobs": 0, "return_token_ids": True, "ignore_eos": True}
        answer = await self._engine.post("/v1/completions", json=body)
        choices = answer.raise_for_status().json()["choices"]
        self._made += 1
        rows = [(f"{self._made}-{i}", float(i % 2), prompt, choice["token_ids"]) for i, choice in enumerate(choices)]
        made = group(rows, versions=[choice["weight_version"] for choice in choices])
        made["inference_logprobs"] = [[1.0] * 4 + choice["logprobs"]["token_logprobs"] for choice in choices]
        return made

    async def send(self, made: dict[str, Any]) -> None:
        body = {"max_token_length": 512, "desired_name": "test", "weight": 1.0, "group_size": 4}
        env_id = -1
        while env_id < 0:
            env_id = (await self._api.post("/register-env", json=body)).json().get("env_id", -1)
            await asyncio.sleep(0.1)
        (await self._api.post("/scored_data", json=made | {"env_id": env_id})).raise_for_status()

    async def serve(self) -> None:
        """Groups for ever, the next one with the weights that the last one has led to."""
        for number in range(1000):
            await self.send(await self.group())
            while (await self._engine.get("/weight_version")).json()["version"] <= number:  # noqa: ASYNC110 - a process
                await asyncio.sleep(0.1)


async def ask(url: str) -> Any:
    async with httpx.AsyncClient() as http:
        return (await http.get(url)).json()


def steps(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]


async def test_it_trains_syncs_and_goes_on_where_it_was(run_api: RunAPI, tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with engine("tiny") as url, Environment(run_api.url, url) as environment:
        model = (await ask(f"{url}/v1/models"))["data"][0]["root"]
        options = trainer.parse(
            ["--model", model, "--api", run_api.url, "--engine", url, "--batch-size", "4", "--out", str(out)]
        )
        options.learning_rate, options.steps = 1e-3, 2
        serving = asyncio.create_task(environment.serve())
        await trainer.train(options)
        assert (await ask(f"{url}/weight_version"))["version"] == 2
        # As if it had been killed with a batch in its hands: it is trained on, nothing else is pulled.
        serving.cancel()
        (out / "batch.json").write_text(json.dumps([await environment.group()]))
        options.steps = 3
        await trainer.train(options)
        assert (await ask(f"{url}/weight_version"))["version"] == 3
    assert [line["step"] for line in steps(out)] == [1, 2, 3]
    assert all(line["lag"] == 0 and line["trained_tokens"] == 32 for line in steps(out))
    assert all(line["mismatch_fresh"] < 1e-5 for line in steps(out))
    assert sorted(path.name for path in out.iterdir()) == ["step-000002", "step-000003", "steps.jsonl"]


async def test_an_adapter_is_trained_and_an_engine_that_comes_back_gets_it(run_api: RunAPI, tmp_path: Path) -> None:
    out = tmp_path / "out"
    async with engine("tiny") as url, Environment(run_api.url, url) as environment:
        model = (await ask(f"{url}/v1/models"))["data"][0]["root"]
        options = trainer.parse(
            ["--model", model, "--lora", "--api", run_api.url, "--engine", url, "--steps", "1", "--out", str(out)]
        )
        options.batch_size = 4
        serving = asyncio.create_task(environment.serve())
        await trainer.train(options)
        serving.cancel()
    async with engine("tiny") as url, Environment(run_api.url, url) as environment:
        options.engine = url
        await trainer.train(options)  # no step is left to take
        assert (await ask(f"{url}/weight_version"))["version"] == 1
        made = await environment.group()
        rows, _ = trainer.rows_of([made], step=1, max_lag=0)
        figures = trainer.Policy(options, out / "step-000001").update(rows)
    assert figures["mismatch_fresh"] < 1e-5
