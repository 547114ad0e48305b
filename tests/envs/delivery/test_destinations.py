"""Groups mean the same to every trainer: token, mask, logprob and effective weight, by their hash.

Each destination's lines go through the library's own types where that is installed, and are then read as its trainer
reads them.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import orjson
import pytest
from row_samples import rollout, score
from turns import turn

from atropos_agent.types import IGNORED
from envs.delivery.exports import ROWS, Export
from envs.delivery.worth import Loss

GROUPS = 1000
Meaning = dict[Any, list[tuple[int, int, float, float]]]
"""Of each row, by rollout and segment: token, 1 where it is trained, logprob, and weight of each place."""


def made(number: int) -> Export:
    """A group: several rows a rollout, turns with advantages of their own, some rows that are not the record, some
    rollouts that are missing because of a failure of ours."""
    rng = random.Random(number)
    members = {}
    for place in range(rng.randint(2, 6)):
        if rng.random() < 0.1:
            continue  # ours failed: it has no reward
        rows = rng.choice([1, 1, 1, 2, 3])
        own = [rng.choice([0.0, 0.0, -0.5, 0.25]) for _ in range(rows)]
        one = rollout(rng.choice([0.0, 0.5, 1.0]), rows, f"r{number}-{place}", turn_advantages=tuple(own))
        if rng.random() < 0.05:
            segments = [
                *one.result.segments[:-1],
                replace(one.result.segments[-1], logprobs=[1.0, *[-0.25] * (rows + 1)]),
            ]
            one = replace(one, result=replace(one.result, segments=tuple(segments)))
        members[one.id] = one
    return Export(score(list(members.values()), number), members)


@pytest.fixture(scope="module")
def groups(pytestconfig: pytest.Config) -> list[Export]:
    """A fifth of the thousand, by turns; with `./run test --all` each."""
    share = slice(turn(5), None, 5) if pytestconfig.option.markexpr else slice(None)
    return [made(number) for number in range(GROUPS)[share]]


def optional(module: str, name: str) -> Any:
    """A library's type; what returns its fields as they are, where the library is not installed."""
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        return None


def lines(form: str, group: Export) -> list[dict[str, Any]]:
    return [json.loads(json.dumps(line)) for line in ROWS[form](group)]


def truth(group: Export) -> Meaning:
    return {
        (row.rollout_id, row.segment): [
            (token, own, logprob if own else 0.0, weight)
            for token, own, logprob, weight in zip(
                row.tokens, row.sampled, row.logprobs, row.advantages(Loss.TOKENS), strict=True
            )
        ]
        for row in group.scored.rows
    }


def of_atropos(group: Export) -> Meaning:
    """Its loss is a mean over rows of means over a row's tokens: a token weighs its advantage by the row's length."""
    wire = orjson.loads(orjson.dumps(group.scored.to_wire()))
    params, found, trained = wire["generation_params"], {}, defaultdict(int)
    for name, masks in zip(params["rollout_ids"], wire["masks"], strict=True):
        trained[name] += sum(mask != IGNORED for mask in masks)
    for place, name in enumerate(params["rollout_ids"]):
        masks = wire["masks"][place]
        times = trained[name] / sum(mask != IGNORED for mask in masks)
        columns = zip(
            wire["tokens"][place], masks, wire["inference_logprobs"][place], wire["advantages"][place], strict=True
        )
        found[name, params["segments"][place]] = [
            (token, int(mask != IGNORED), logprob if mask != IGNORED else 0.0, advantage * times)
            for token, mask, logprob, advantage in columns
        ]
    return found


def of_trl(group: Export) -> Meaning:
    """Its loss is a mean over the batch's tokens; a row comes once for each advantage of its tokens."""
    sample_of = optional("trl.experimental.async_grpo.async_rollout_worker", "RolloutSample")
    found: Meaning = {}
    for line in lines("trl", group):
        read = dict(line)
        if sample_of is not None:
            arrays = {name: np.asarray(line[name]) for name in ("input_ids", "completion_mask", "old_log_probs")}
            known = {field.name for field in fields(sample_of)}
            sample = sample_of(**{name: value for name, value in line.items() if name in known} | arrays)
            read |= {name: getattr(sample, name) for name in known}
        places = found.setdefault(
            (line["rollout_id"], line["segment"]), [(int(token), 0, 0.0, 0.0) for token in read["input_ids"]]
        )
        for place, own in enumerate(read["completion_mask"]):
            if own:
                assert not places[place][1], "a token is trained once"
                places[place] = (places[place][0], 1, float(read["old_log_probs"][place]), read["advantage"])
    return found


def of_verl(group: Export) -> Meaning:
    """Its token-mean loss is a mean over the batch's tokens."""
    output_of = optional("verl.experimental.agent_loop.agent_loop", "AgentLoopOutput")
    found: Meaning = {}
    for line in lines("verl", group):
        line.pop("uid")
        read = line if output_of is None else output_of(**line).model_dump()
        extra, before = read["extra_fields"], len(read["prompt_ids"])
        columns = (read["response_ids"], read["response_mask"], read["response_logprobs"], extra["advantages"])
        prompt = [(token, 0, 0.0, 0.0) for token in read["prompt_ids"]]
        found[extra["rollout_id"], extra["segment"]] = prompt + list(zip(*columns, strict=True))
        assert len(found[extra["rollout_id"], extra["segment"]]) == before + len(read["response_ids"])
    return found


def of_verifiers(group: Export) -> Meaning:
    """prime-rl's loss is a mean over tokens; a branch is a sample."""
    trace_of = optional("verifiers.v1.trace", "WireTrace")
    found: Meaning = {}
    for line in lines("verifiers", group):
        (trace,) = line["traces"]
        rows = [(row["rollout_id"], row["segment"]) for row in trace["info"]["rows"]]
        if trace_of is None:
            branches = list(_paths(trace["nodes"]))
        else:
            branches = [
                (one.token_ids, one.sampled_mask, one.logprobs, one.advantages) for one in trace_of(**trace).branches
            ]
        for key, columns in zip(rows, branches, strict=True):
            found[key] = [
                (token, int(own), logprob, weight) for token, own, logprob, weight in zip(*columns, strict=True)
            ]
    return found


def _paths(nodes: list[dict[str, Any]]) -> Iterator[tuple[list[Any], ...]]:
    """Each root begins a path of its own, and no node has two children."""
    columns: tuple[list[Any], ...] | None = None
    for node in nodes:
        if node["parent"] is None:
            if columns is not None:
                yield columns
            columns = ([], [], [], [])
        assert columns is not None
        count = len(node["token_ids"])
        told = (node["token_ids"], node["mask"], node["logprobs"] or [0.0] * count, node["advantages"] or [0.0] * count)
        for column, values in zip(columns, told, strict=True):
            column.extend(values)
    if columns is not None:
        yield columns


def of_tinker(group: Export) -> Meaning:
    """Its losses are sums over tokens; place n says what is to be learnt of token n + 1."""
    datum_of, input_of = optional("tinker", "Datum"), optional("tinker", "ModelInput")
    found: Meaning = {}
    for line in lines("tinker", group):
        inputs = {name: told["data"] for name, told in line["loss_fn_inputs"].items()}
        tokens = [token for chunk in line["model_input"]["chunks"] for token in chunk["tokens"]]
        if datum_of is not None:
            tensor = optional("tinker", "TensorData")
            told = {name: tensor(**value) for name, value in line["loss_fn_inputs"].items()}
            datum = datum_of(model_input=input_of.model_validate(line["model_input"]), loss_fn_inputs=told)
            inputs = {name: list(value.data) for name, value in datum.loss_fn_inputs.items()}
            tokens = datum.model_input.to_ints()
        assert inputs["target_tokens"][:-1] == tokens[1:]
        names = ("target_tokens", "mask", "logprobs", "advantages")
        learnt = [(t, int(m), p, a) for t, m, p, a in zip(*(inputs[name] for name in names), strict=True)]
        found[line["rollout_id"], line["segment"]] = [(tokens[0], 0, 0.0, 0.0), *learnt]
    return found


def hashed(meanings: Iterable[Meaning]) -> str:
    digest = hashlib.sha256()
    for number, meaning in enumerate(meanings):
        for key in sorted(meaning):
            told = [(int(t), int(m), round(float(p), 6) + 0.0, round(float(a), 6) + 0.0) for t, m, p, a in meaning[key]]
            digest.update(repr((number, key, told)).encode())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def true_hash(groups: list[Export]) -> str:
    return hashed(map(truth, groups))


READERS: dict[str, Callable[[Export], Meaning]] = {
    "atropos": of_atropos,
    "trl": of_trl,
    "verl": of_verl,
    "verifiers": of_verifiers,
    "tinker": of_tinker,
}


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("destination", READERS)
def test_groups_mean_the_same_everywhere(groups: list[Export], true_hash: str, destination: str) -> None:
    assert hashed(map(READERS[destination], groups)) == true_hash


def test_they_hold_what_is_hard(groups: list[Export]) -> None:
    rows = [row for group in groups for row in group.scored.rows]
    assert sum(row.share < 1 for row in rows) > len(groups) / 2, "rollouts of several rows"
    own = sum(any(turn.advantage for turn in row.turns) for row in rows)
    assert own > len(groups) / 2, "turns with advantages of their own"
    assert sum(len(group.scored.dropped) for group in groups) > len(groups) / 10, "rows that are not the record"


@pytest.mark.parametrize("what", range(4))
def test_a_difference_in_one_place_is_another_hash(groups: list[Export], what: int) -> None:
    meaning = truth(groups[0])
    spoilt = {key: list(places) for key, places in meaning.items()}
    key = next(iter(spoilt))
    place = list(spoilt[key][-1])
    place[what] += 1
    spoilt[key][-1] = tuple(place)
    assert hashed([spoilt]) != hashed([meaning])
