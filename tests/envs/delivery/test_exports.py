"""Rows in other trainers' forms say what the group said: token, mask, logprob and what each token weighs."""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from collections import Counter, defaultdict
from dataclasses import asdict, replace
from importlib.util import find_spec
from typing import Any

import pytest
from atroposlib.api.server import ScoredData
from hypothesis import given
from hypothesis import strategies as st
from row_samples import rollout, score
from transformers import LlamaConfig, LlamaForCausalLM

from atropos_agent.types import IGNORED, AgentStep, Exchange, SequenceData
from envs.delivery.exports import ROWS, Export, preference_pairs, sft_rows, trl_rows, verl_rows
from envs.delivery.worth import Loss

MEMBERS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.5, 1.0]),
        st.integers(1, 4),
        st.booleans(),
        st.lists(st.sampled_from([0.0, -0.5, 0.25]), min_size=4, max_size=4),
        st.lists(st.none() | st.integers(0, 9), min_size=4, max_size=4),
    ),
    min_size=2,
    max_size=5,
)
"""Of each: reward, rows, whether one of them is unsound, the turns' own advantages, and their versions."""


def export_of(drawn: Any) -> Export:
    members = {}
    for number, (reward, rows, unsound, own, versions) in enumerate(drawn):
        one = rollout(reward, rows, f"r{number}", turn_advantages=tuple(own[:rows]))
        steps = [replace(step, policy_version=versions[step.index]) for step in one.result.steps]
        segments = list(one.result.segments)
        if unsound:
            segments[-1] = replace(segments[-1], tokens=[9, *segments[-1].tokens[1:]])
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": f"reply {number}"}]
        result = replace(one.result, steps=tuple(steps), segments=tuple(segments), messages=tuple(messages))
        members[one.id] = replace(one, result=result)
    return Export(score(list(members.values()), 3), members)


def lines(form: str, group: Export) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(line)) for line in ROWS[form](group)]


def truth(group: Export) -> dict[Any, Any]:
    return {
        (row.rollout_id, row.segment): [
            list(row.tokens),
            row.sampled,
            [logprob if own else 0.0 for logprob, own in zip(row.logprobs, row.sampled, strict=True)],
            pytest.approx(row.advantages(Loss.TOKENS)),
        ]
        for row in group.scored.rows
    }


def from_trl(samples: list[dict[str, Any]]) -> dict[Any, Any]:
    """Parts of a row are added up, as the sum over tokens in the trainer's loss does."""
    found: dict[Any, Any] = {}
    for one in samples:
        zeros = [0] * len(one["input_ids"])
        row = found.setdefault((one["rollout_id"], one["segment"]), [one["input_ids"], zeros, zeros, zeros])
        assert row[0] == one["input_ids"]
        row[1] = [a + b for a, b in zip(row[1], one["completion_mask"], strict=True)]
        row[2] = [a + b for a, b in zip(row[2], one["old_log_probs"], strict=True)]
        row[3] = [a + b * one["advantage"] for a, b in zip(row[3], one["completion_mask"], strict=True)]
    return found


def from_verl(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    found = {}
    for row in rows:
        extra, before = row["extra_fields"], [0] * len(row["prompt_ids"])
        found[extra["rollout_id"], extra["segment"]] = [
            row["prompt_ids"] + row["response_ids"],
            before + row["response_mask"],
            before + row["response_logprobs"],
            before + extra["advantages"],
        ]
    return found


def from_tinker(rows: list[dict[str, Any]]) -> dict[Any, Any]:
    found = {}
    for row in rows:
        inputs = {name: value["data"] for name, value in row["loss_fn_inputs"].items()}
        ids = row["model_input"]["chunks"][0]["tokens"]
        assert ids[1:] == inputs["target_tokens"][:-1]
        found[row["rollout_id"], row["segment"]] = [
            ids[:1] + inputs["target_tokens"],
            *([0, *inputs[name]] for name in ("mask", "logprobs", "advantages")),
        ]
    return found


def from_verifiers(episodes: list[dict[str, Any]]) -> dict[Any, Any]:
    """As `Trace.branches` reads them: a path from a root to a leaf is a row."""
    found = {}
    for episode in episodes:
        (trace,) = episode["traces"]
        paths: dict[int, list[Any]] = {}
        for place, node in enumerate(trace["nodes"]):
            paths[place] = [*paths.pop(node["parent"], []), node]
        for nodes, told in zip(paths.values(), trace["info"]["rows"], strict=True):
            row: list[list[float]] = [[], [], [], []]
            for node in nodes:
                own, count = node["sampled"], len(node["token_ids"])
                row[0] += node["token_ids"]
                row[1] += map(int, node["mask"])
                row[2] += node["logprobs"] if own else [0.0] * count
                row[3] += node["advantages"] if own else [0.0] * count
            found[trace["id"], told["segment"]] = row
    return found


READERS = {"trl": from_trl, "verl": from_verl, "tinker": from_tinker, "verifiers": from_verifiers}


@pytest.mark.parametrize("form", READERS)
@given(drawn=MEMBERS)
def test_token_mask_logprob_and_weight_are_the_same_in_every_form(form: str, drawn: Any) -> None:
    group = export_of(drawn)
    assert READERS[form](lines(form, group)) == truth(group)


def drawn_rollout(rng: random.Random, name: str) -> Any:
    """A rollout of one to four rows of one to three replies each, with results of tools between them. In one of ten,
    the last row is not what the inference server saw: our failure."""
    rows: list[SequenceData] = []
    steps: list[AgentStep] = []
    record = []
    for segment in range(rng.randint(1, 4)):
        tokens, masks, logprobs = [rng.randrange(1000) for _ in range(rng.randint(1, 5))], list[int](), list[float]()
        masks, logprobs = [IGNORED] * len(tokens), [1.0] * len(tokens)
        for turn in range(rng.randint(1, 3)):
            if turn:
                tokens, masks, logprobs = [*tokens, 7, 8], [*masks, IGNORED, IGNORED], [*logprobs, 1.0, 1.0]
            ids = [rng.randrange(1000) for _ in range(rng.randint(1, 6))]
            told = [-rng.randrange(5000) / 1024 for _ in ids]
            record.append(Exchange(turn > 0, (7, 8) if turn else tuple(tokens), tuple(ids), tuple(told)))
            version = rng.choice((None, 3, 4))
            start = len(tokens)
            steps.append(AgentStep(len(steps), "a", segment=segment, start=start, completion_tokens=len(ids)))
            steps[-1] = replace(steps[-1], policy_version=version)
            tokens, masks, logprobs = tokens + ids, masks + ids, logprobs + told
        if segment and rng.random() < 0.1:
            tokens = [tokens[0] + 1, *tokens[1:]]
        rows.append(SequenceData("a", tokens, masks, logprobs, segment=segment))
    one = rollout(rng.choice((0.0, 0.5, 1.0)), 1, name)
    own = [rng.choice((0.0, 0.0, -0.5, 0.25)) for _ in steps] if rng.random() < 0.5 else []
    result = replace(one.result, steps=tuple(steps), segments=tuple(rows), record=tuple(record))
    return replace(one, result=result, reward=replace(one.reward, turn_advantages=tuple(own)))


def from_atropos(wire: dict[str, Any], group: Export) -> dict[Any, Any]:
    """The trainer's loss is a mean over rows of the mean over a row's tokens: it is told what a token weighs there,
    beside one of a rollout of a single row."""
    whole = {name: rollout.result.sampled_tokens for name, rollout in group.rollouts.items()}
    found = {}
    told = wire["generation_params"]
    for place, key in enumerate(zip(told["rollout_ids"], told["segments"], strict=True)):
        masks = [int(mask != IGNORED) for mask in wire["masks"][place]]
        weight = whole[key[0]] / sum(masks)
        found[key] = [
            wire["tokens"][place],
            masks,
            [value if own else 0.0 for value, own in zip(wire["inference_logprobs"][place], masks, strict=True)],
            [value * weight for value in wire["advantages"][place]],
        ]
    return found


def published(form: str, told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return lines as the library's own types hold them, where it is installed."""
    if form == "trl" and find_spec("trl"):
        sample = importlib.import_module("trl.experimental.async_grpo.async_rollout_worker").RolloutSample
        names = sample.__dataclass_fields__
        return [{**one, **asdict(sample(**{n: v for n, v in one.items() if n in names}))} for one in told]
    if form == "verl" and find_spec("verl"):
        output = importlib.import_module("verl.experimental.agent_loop.agent_loop").AgentLoopOutput
        return [output(**{n: v for n, v in one.items() if n != "uid"}).model_dump() for one in told]
    if form == "tinker" and find_spec("tinker"):
        tinker = importlib.import_module("tinker")
        held = []
        for one in told:
            inputs = {name: tinker.TensorData(**value) for name, value in one["loss_fn_inputs"].items()}
            ids = tinker.ModelInput.from_ints(one["model_input"]["chunks"][0]["tokens"])
            datum = tinker.Datum(model_input=ids, loss_fn_inputs=inputs)
            told_inputs = {name: {"data": list(value.data)} for name, value in datum.loss_fn_inputs.items()}
            tokens = {"chunks": [{"tokens": datum.model_input.to_ints()}]}
            held.append({**one, "model_input": tokens, "loss_fn_inputs": told_inputs})
        return held
    if form == "verifiers" and find_spec("verifiers"):
        trace = importlib.import_module("verifiers.v1").WireTrace
        return [{**one, "traces": [_branches(trace.model_validate(one["traces"][0]))]} for one in told]
    return told


def _branches(trace: Any) -> dict[str, Any]:
    """Return a trace with the rows of its branches as one node each, as its own class reads them."""
    nodes = [
        {
            "parent": None,
            "sampled": True,
            "token_ids": list(branch.token_ids),
            "mask": list(branch.sampled_mask),
            "logprobs": list(branch.logprobs),
            "advantages": list(branch.advantages),
        }
        for branch in trace.branches
    ]
    return {"id": trace.id, "nodes": nodes, "info": trace.info}


def digest(rows: dict[Any, Any]) -> bytes:
    """Return a hash of rows by their rollouts and segments: token, mask, logprob, and what each token weighs."""
    told = [
        [*key, tokens, [*map(int, masks)], *([round(float(one), 6) + 0.0 for one in values] for values in floats)]
        for key, (tokens, masks, *floats) in sorted(rows.items())
    ]
    return hashlib.blake2b(json.dumps(told).encode()).digest()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")  # of libraries that are not ours
def test_a_thousand_groups_are_the_same_rows_for_every_trainer() -> None:
    hashes = {name: hashlib.blake2b() for name in ("ours", "atropos", *READERS)}
    counts: Counter[str] = Counter()
    for number in range(1000):
        rng = random.Random(number)
        members = [drawn_rollout(rng, f"r{seat}") for seat in range(rng.randint(2, 4))]
        group = Export(score(members, number), {one.id: one for one in members})
        counts += Counter(rows=len(group.scored.rows), failures=len({one.rollout_id for one in group.scored.dropped}))
        ours = {
            (row.rollout_id, row.segment): [
                list(row.tokens),
                row.sampled,
                exact_logprobs(row),
                row.advantages(Loss.TOKENS),
            ]
            for row in group.scored.rows
        }
        hashes["ours"].update(digest(ours))
        wire = ScoredData(**json.loads(json.dumps(group.scored.to_wire()))).model_dump()
        hashes["atropos"].update(digest(from_atropos(wire, group)))
        for form, reader in READERS.items():
            hashes[form].update(digest(reader(published(form, lines(form, group)))))
    assert counts["rows"] > 5000
    assert counts["failures"] > 100
    assert len({one.hexdigest() for one in hashes.values()}) == 1, {n: one.hexdigest() for n, one in hashes.items()}


def exact_logprobs(row: Any) -> list[float]:
    return [value if own else 0.0 for value, own in zip(row.logprobs, row.sampled, strict=True)]


@pytest.mark.parametrize("form", ROWS)
@given(drawn=MEMBERS)
def test_every_form_names_rollout_group_segment_advantage_and_versions(form: str, drawn: Any) -> None:
    group = export_of(drawn)
    rows = {(row.rollout_id, row.segment): row for row in group.scored.rows}
    for line in lines(form, group):
        told = [line.get("extra_fields", line)]
        if form == "verifiers":
            told = line["traces"][0]["info"]["rows"]
        if form == "preferences":
            assert line["group_id"] == "g3"
            assert line["chosen_reward"] > line["rejected_reward"]
            assert {"chosen_rollout_id", "rejected_segments", "chosen_advantage", "rejected_max_policy_version"} <= set(
                line
            )
            continue
        for one in told:
            row = rows[one["rollout_id"], one["segment"]]
            assert one.get("group", one.get("group_id")) == "g3"
            assert one["rollout_advantage"] == row.advantage
            known = [version for version in row.versions if version is not None]
            assert (one["min_policy_version"], one["max_policy_version"]) == (
                min(known, default=None),
                max(known, default=None),
            )
            assert [version for version in one["policy_versions"] if version is not None] == known


TWO_ROWS = [(1.0, 2, False, [0.0] * 4, [1, 2, None, None]), (0.0, 1, False, [0.0] * 4, [2, None, None, None])]


def test_a_rollout_of_two_rows_is_refused_where_a_trainer_takes_one() -> None:
    group = export_of(TWO_ROWS)
    with pytest.raises(ValueError, match="rollout r0 has 2 rows, and GRPOTrainer's rollout_func takes one"):
        list(trl_rows(group.scored.rows))
    assert len(list(trl_rows(group.scored.rows[2:]))) == 1


def test_rows_that_are_part_of_one_in_trl_share_what_it_weighs() -> None:
    drawn = [(1.0, 1, False, [0.5, 0, 0, 0], [1] * 4), (0.0, 1, False, [0.0] * 4, [1] * 4)]
    samples = lines("trl", export_of(drawn))
    assert [(one["rollout_id"], one["advantage"], one["share"]) for one in samples] == [("r0", 1.5, 1.0), ("r1", -1, 1)]
    shares: dict[str, float] = defaultdict(float)
    for one in lines("trl", export_of(TWO_ROWS)):
        shares[one["rollout_id"]] += one["share"]
    assert shares == pytest.approx({"r0": 1.0, "r1": 1.0})


def test_the_oldest_version_decides_when_trl_drops_a_row() -> None:
    samples = lines("trl", export_of(TWO_ROWS))
    assert [one["model_version"] for one in samples] == [1, 2, 2]


def test_solved_rollouts_alone_are_imitated() -> None:
    rows = list(sft_rows(export_of([*TWO_ROWS, (0.5, 1, False, [0.0] * 4, [None] * 4)])))
    assert [row["rollout_id"] for row in rows] == ["r0", "r0"]
    assert rows[0]["labels"] == [-100, 2, 3]


def test_the_best_is_preferred_to_the_worst_each_once() -> None:
    drawn = [(reward, 1, False, [0.0] * 4, [None] * 4) for reward in (0.5, 1.0, 0.0, 0.5, 0.0)]
    pairs = list(preference_pairs(export_of(drawn)))
    assert [(pair["chosen_rollout_id"], pair["rejected_rollout_id"]) for pair in pairs] == [("r1", "r4"), ("r0", "r2")]
    assert (pairs[0]["prompt"], pairs[0]["chosen"]) == (
        [{"role": "user", "content": "x"}],
        [{"role": "assistant", "content": "reply 1"}],
    )


PUBLISHED = {
    # trl/experimental/async_grpo/async_rollout_worker.py, RolloutSample without its default
    "trl": {
        "prompt": list,
        "completion": list,
        "input_ids": list,
        "completion_mask": list,
        "old_log_probs": list,
        "advantage": float,
        "model_version": int,
        "group_id": int,
        "metrics": dict,
    },
    # verl/experimental/agent_loop/agent_loop.py, AgentLoopOutput without what is None there
    "verl": {
        "prompt_ids": list,
        "response_ids": list,
        "response_mask": list,
        "response_logprobs": list,
        "reward_score": float,
        "num_turns": int,
        "metrics": dict,
        "extra_fields": dict,
    },
    "tinker": {"model_input": dict, "loss_fn_inputs": dict},
    "verifiers": {"id": str, "env": dict, "task": dict, "traces": list, "ok": bool},
    "sft": {"input_ids": list, "labels": list},
}


@pytest.mark.parametrize("form", PUBLISHED)
def test_fields_have_the_names_and_types_that_the_library_publishes(form: str) -> None:
    for line in lines(form, export_of(TWO_ROWS)):
        assert {name: type(line[name]) for name in PUBLISHED[form]} == PUBLISHED[form]


# With the libraries themselves, where they are installed.


def test_datasets_take_the_rows() -> None:
    datasets = pytest.importorskip("datasets")
    for form in ("trl", "verl", "sft", "preferences"):
        given_lines = lines(form, export_of(TWO_ROWS))
        assert datasets.Dataset.from_list(given_lines)[:] == {
            name: [line[name] for line in given_lines] for name in given_lines[0]
        }


@pytest.mark.slow
def test_trls_own_type_takes_the_rows() -> None:
    worker = pytest.importorskip("trl.experimental.async_grpo.async_rollout_worker", reason="trl is not installed")
    names = worker.RolloutSample.__dataclass_fields__
    group = export_of(TWO_ROWS)
    samples = [
        worker.RolloutSample(**{name: value for name, value in line.items() if name in names})
        for line in lines("trl", group)
    ]
    assert [sample.input_ids for sample in samples] == [list(row.tokens) for row in group.scored.rows]


@pytest.mark.slow
def test_verls_own_type_takes_the_rows() -> None:
    agent_loop = pytest.importorskip("verl.experimental.agent_loop.agent_loop", reason="verl is not installed")
    for row in verl_rows(export_of(TWO_ROWS).scored.rows):
        fields = {name: value for name, value in row.items() if name != "uid"}
        assert agent_loop.AgentLoopOutput(**fields).response_ids == row["response_ids"]


@pytest.mark.slow
def test_tinkers_own_types_take_the_rows() -> None:
    tinker = pytest.importorskip("tinker", reason="tinker is not installed")
    group = export_of(TWO_ROWS)
    read = []
    for line in lines("tinker", group):
        datum = tinker.Datum(
            model_input=tinker.ModelInput.from_ints(line["model_input"]["chunks"][0]["tokens"]),
            loss_fn_inputs={name: tinker.TensorData(**value) for name, value in line["loss_fn_inputs"].items()},
        )
        inputs = {name: {"data": value.data} for name, value in datum.loss_fn_inputs.items()}
        tokens = {"chunks": [{"tokens": datum.model_input.to_ints()}]}
        read.append({**line, "model_input": tokens, "loss_fn_inputs": inputs})
    assert from_tinker(read) == truth(group)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a library that is not ours
def test_verifiers_reads_the_episodes_as_its_own(tmp_path: Any) -> None:
    vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
    store = pytest.importorskip("verifiers.v1.utils.trace_store", reason="verifiers is not installed")
    group = export_of(TWO_ROWS)
    (tmp_path / store.TRACES_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines("verifiers", group)))
    found = {}
    for episode in store.read_episodes(tmp_path, vf.WireTrace):
        (trace,) = episode.traces
        assert trace.reward == group.rollouts[trace.id].reward.value
        for branch, told in zip(trace.branches, trace.info["rows"], strict=True):
            mask = list(map(int, branch.sampled_mask))
            found[trace.id, told["segment"]] = [branch.token_ids, mask, branch.logprobs, branch.advantages]
    assert found == truth(group)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of a library that is not ours
def test_trl_trains_on_the_rows(tmp_path: Any, smollm2_tokenizer: Any) -> None:
    trl = pytest.importorskip("trl", reason="trl is not installed")
    datasets = pytest.importorskip("datasets")
    rewards = [1.0, 0.0, 0.0, 1.0]
    rows = list(trl_rows(export_of([(reward, 1, False, [0.0] * 4, [None] * 4) for reward in rewards]).scored.rows))

    def rollouts(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        return {name: [row[name] for row in rows] for name in rows[0]}

    def rewarded(reward: list[float], **kwargs: Any) -> list[float]:
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
        reward_funcs=rewarded,
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
    assert logged["reward"] == pytest.approx(sum(rewards) / len(rows))
    sampled = [sum(row["env_mask"]) for row in rows]
    assert logged["completions/mean_length"] == pytest.approx(sum(sampled) / len(rows)), "sampled tokens alone count"
    assert any((old != new).any() for old, new in zip(before, network.parameters(), strict=True))
