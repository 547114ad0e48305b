"""Groups mean the same to every trainer: token, mask, logprob and effective weight, by their hash.

Each destination's lines are read twice: by the library's own types and decoder, skipped where it is not installed, and
by a stand-in for them that is written here.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
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


def of_atropos(group: Export, own: Any) -> Meaning:
    """Its loss is a mean over rows of means over a row's tokens: a token weighs its advantage by the row's length."""
    wire = orjson.loads(orjson.dumps(group.scored.to_wire()))
    if own:
        wire = own.ScoredData.model_validate(wire).model_dump()
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


def of_trl(group: Export, own: Any) -> Meaning:
    """Its loss is a mean over the batch's tokens; a row comes once for each advantage of its tokens."""
    given = lines("trl", group)
    found: Meaning = {}
    for line, (tokens, terms) in zip(given, _packed(given, own) if own else _unpacked(given), strict=True):
        places = found.setdefault((line["rollout_id"], line["segment"]), [(token, 0, 0.0, 0.0) for token in tokens])
        for place, token, logprob, advantage in terms:
            assert not places[place][1], "a token is trained once"
            places[place] = (token, 1, logprob, advantage)
    return found


Terms = list[tuple[int, int, float, float]]
"""Of the loss: place, token, logprob and advantage."""


def _packed(given: list[dict[str, Any]], own: Any) -> Iterator[tuple[list[int], Terms]]:
    """Read the terms of the loss from TRL's batch, in which common beginnings of samples are one."""
    row = own.TreeRow()
    for line in given:
        row.add(line | {name: np.asarray(line[name]) for name in ("input_ids", "completion_mask", "old_log_probs")})
    batch = {name: tensor.tolist() for name, tensor in row.pack().items()} if given else defaultdict(list)
    terms: list[Terms] = [[] for _ in given]
    columns = (batch[name] for name in ("segment_id", "token_index", "old_log_probs", "advantages"))
    for sample, before, logprob, advantage in zip(*columns, strict=True):
        place, token = batch["position_ids"][before] + 1, batch["shift_labels"][before]
        terms[sample].append((place, token, logprob, advantage))
    for nodes, mine in zip(row.sample_nodes, terms, strict=True):
        yield [row.tokens[node] for node in nodes], mine


def _unpacked(given: list[dict[str, Any]]) -> Iterator[tuple[list[int], Terms]]:
    for line in given:
        tokens, logprobs, mask = line["input_ids"], line["old_log_probs"], line["completion_mask"]
        yield tokens, [(n, tokens[n], logprobs[n], line["advantage"]) for n, trained in enumerate(mask) if trained]


def of_verl(group: Export, own: Any) -> Meaning:
    """Its token-mean loss is a mean over the batch's tokens."""
    found: Meaning = {}
    for line in lines("verl", group):
        line.pop("uid")
        names = ["prompt_ids", "response_ids", "response_mask", "response_logprobs"]
        if own:
            read = own.AgentLoopOutput(**line).as_dict()
            columns = [read[name].tolist() for name in ("prompts", "responses", "response_mask", "rollout_log_probs")]
        else:
            read, columns = line, [line[name] for name in names]
        extra = read["extra_fields"]
        prompt = [(token, 0, 0.0, 0.0) for token in columns[0]]
        response = zip(*columns[1:], extra["advantages"], strict=True)
        found[extra["rollout_id"], extra["segment"]] = [*prompt, *response]
    return found


def of_verifiers(group: Export, own: Any) -> Meaning:
    """A branch of its trace is a sample."""
    return _of_traces(group, lambda trace: map(_branch, own.WireTrace(**trace).branches) if own else _paths(trace))


def of_prime_rl(group: Export, own: Any) -> Meaning:
    """It makes its samples of verifiers' traces; its loss is a mean over tokens."""
    return _of_traces(group, lambda trace: map(_sample, own.trace_to_samples(own.vf.WireTrace(**trace))))


Columns = tuple[list[Any], ...]
"""Token, mask, logprob and advantage of each place."""


def _of_traces(group: Export, read: Callable[[dict[str, Any]], Iterable[Columns]]) -> Meaning:
    found: Meaning = {}
    for line in lines("verifiers", group):
        (trace,) = line["traces"]
        rows = [(row["rollout_id"], row["segment"]) for row in trace["info"]["rows"]]
        for key, columns in zip(rows, read(trace), strict=True):
            found[key] = [
                (token, int(own), logprob, weight) for token, own, logprob, weight in zip(*columns, strict=True)
            ]
    return found


def _branch(branch: Any) -> Columns:
    return branch.token_ids, branch.sampled_mask, branch.logprobs, branch.advantages


def _sample(sample: Any) -> Columns:
    return sample.token_ids, sample.mask, sample.logprobs, sample.advantages


def _paths(trace: dict[str, Any]) -> Iterator[Columns]:
    """Each root begins a path of its own, and no node has two children."""
    columns: Columns | None = None
    for node in trace["nodes"]:
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


def of_tinker(group: Export, own: Any) -> Meaning:
    """Its losses are sums over tokens; place n says what is to be learnt of token n + 1."""
    found: Meaning = {}
    for line in lines("tinker", group):
        inputs = {name: told["data"] for name, told in line["loss_fn_inputs"].items()}
        tokens = [token for chunk in line["model_input"]["chunks"] for token in chunk["tokens"]]
        if own:
            told = {name: own.TensorData(**value) for name, value in line["loss_fn_inputs"].items()}
            model_input = own.ModelInput.model_validate(line["model_input"])
            datum = own.Datum(model_input=model_input, loss_fn_inputs=told)
            inputs = {name: value.tolist() for name, value in datum.loss_fn_inputs.items()}
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
            told = [(int(t), int(m), _real(p), _real(a)) for t, m, p, a in meaning[key]]
            digest.update(repr((number, key, told)).encode())
    return digest.hexdigest()


def _real(number: float) -> float:
    """Return the number in 32 bits, as trainers have it; what is left of a division is 0."""
    return float(np.float32(round(number, 12))) + 0.0


@pytest.fixture(scope="module")
def true_hash(groups: list[Export]) -> str:
    return hashed(map(truth, groups))


READERS: dict[str, tuple[Callable[[Export, Any], Meaning], str]] = {
    "atropos": (of_atropos, "atroposlib.api.server"),
    "trl": (of_trl, "trl.experimental.async_grpo.packing"),
    "verl": (of_verl, "verl.experimental.agent_loop.agent_loop"),
    "verifiers": (of_verifiers, "verifiers.v1.trace"),
    "tinker": (of_tinker, "tinker"),
    "prime-rl": (of_prime_rl, "prime_rl.orchestrator.trajectories"),
}
"""How a destination reads a group, and the module of its own types and decoder."""


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("destination", READERS)
def test_groups_mean_the_same_to_the_library_itself(groups: list[Export], true_hash: str, destination: str) -> None:
    read, module = READERS[destination]
    own = pytest.importorskip(module)
    assert hashed(read(group, own) for group in groups) == true_hash


@pytest.mark.parametrize("destination", [name for name in READERS if name != "prime-rl"])
def test_groups_mean_the_same_to_a_stand_in(groups: list[Export], true_hash: str, destination: str) -> None:
    read, _ = READERS[destination]
    assert hashed(read(group, None) for group in groups) == true_hash


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
