"""Routed experts are kept as the inference server told them, from its answer to the row and back from disk."""

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from row_samples import TASK
from scripted_engine import ScriptedEngine

from atropos_agent.agent import AtroposAgent
from atropos_agent.engines.completions import CompletionsServer
from atropos_agent.tokens.experts import extend_experts, read_experts, write_experts
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import AgentConfig, AgentError
from envs.delivery.rows import Origin, read_rows, score_group
from envs.options import EngineConfig
from envs.records.atif import RolloutWriter
from envs.records.read import read_rollouts
from envs.types import Reward, Rollout, Verdict

LAYERS, CHOSEN = 3, 2


def array_of(header):
    """The text of an array that is no more than its header."""
    return base64.b64encode(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()).decode()


ONE = "{'descr': '<i8', 'fortran_order': False, 'shape': (%s, 2, 2), }"
NO_ARRAYS = (
    base64.b64encode(b"PK\x03\x04").decode(),  # which NumPy reads as an archive of several
    array_of(ONE % 10**14),
    array_of(ONE % 10**30),
    array_of(ONE % "True"),
    array_of("{'descr': "),
)


def routing(ids, turn):
    """Experts of each token but the last, by which token and turn can be told."""
    found = np.zeros((len(ids) - 1, LAYERS, CHOSEN), dtype=np.uint8)
    found[:, :, 0] = np.array(ids[:-1])[:, None] % 200
    found[:, :, 1] = turn
    return found


async def converse(tokenizer, edit):
    """Three turns with an engine whose choices are changed."""
    with ScriptedEngine(lambda prompt: "<tool_call>\n{broken\n</tool_call>", tokenizer) as engine:
        engine.edit = edit
        server = CompletionsServer(EngineConfig(base_url=engine.url, model_name="scripted"))
        try:
            agent = AtroposAgent(server, config=AgentConfig(max_steps=3), template=ChatTemplate(tokenizer))
            return await agent.run("Go.")
        finally:
            await server.close()


def tells(number, choice):
    choice["routed_experts"] = write_experts(routing(choice["prompt_token_ids"] + choice["token_ids"], number))


async def test_each_token_keeps_the_experts_that_were_told_when_it_was_computed_first(smollm2_tokenizer):
    result = await converse(smollm2_tokenizer, tells)
    (row,) = result.segments
    experts = read_experts(row.experts)
    assert experts.shape == (len(row.tokens) - 1, LAYERS, CHOSEN)
    assert (experts[:, 0, 0] == np.array(row.tokens[:-1]) % 200).all()
    turns = [step.start + step.completion_tokens - 1 for step in result.steps]
    expected = np.searchsorted(turns, np.arange(len(row.tokens) - 1), side="right") + 1
    assert (experts[:, 0, 1] == expected).all()


async def test_rows_are_as_they_were_where_a_server_tells_of_none(smollm2_tokenizer):
    result = await converse(smollm2_tokenizer, lambda number, choice: None)
    assert result.segments[0].experts is None


async def test_where_the_last_reply_has_none_the_row_has_none(smollm2_tokenizer):
    result = await converse(smollm2_tokenizer, lambda number, choice: tells(number, choice) if number < 3 else None)
    assert result.segments[0].experts is None
    result = await converse(smollm2_tokenizer, lambda number, choice: tells(number, choice) if number > 1 else None)
    assert (read_experts(result.segments[0].experts)[:, 0, 1] >= 2).all()


@pytest.mark.parametrize(
    ("routed", "reason"),
    [
        ("?", "no array"),
        *((text, "no array") for text in NO_ARRAYS),
        (write_experts(np.zeros((500, 0, 2), dtype=np.uint8)), "the shape"),
        (write_experts(np.zeros((500, 2), dtype=np.uint8)), "the shape"),
        (write_experts(np.zeros((5, 2, 2), dtype=np.uint8)), "experts of 5 tokens for a sequence of"),
        (write_experts(np.zeros((500, 2, 2), dtype=np.uint8).astype(float)), "float64"),
    ],
)
async def test_what_can_not_be_of_the_sequence_is_refused(smollm2_tokenizer, routed, reason):
    with pytest.raises(AgentError, match=reason):
        await converse(smollm2_tokenizer, lambda number, choice: choice.update(routed_experts=routed))


async def test_they_go_to_disk_and_to_the_trainer(smollm2_tokenizer, tmp_path):
    result = await converse(smollm2_tokenizer, tells)
    async with RolloutWriter(tmp_path) as writer:
        await writer.write(Rollout("r", TASK, result, Verdict(1.0, ""), Reward(1.0)))
    (saved,) = read_rollouts(tmp_path)
    assert saved.result.segments[0].experts == result.segments[0].experts
    wire = json.loads(json.dumps(score_group([saved], Origin(0, "g", "t")).to_wire()))
    assert wire["generation_params"]["routed_experts"] == [result.segments[0].experts]
    assert read_rows(wire)[0].experts == result.segments[0].experts
    plain = replace(result, segments=[replace(row, experts=None) for row in result.segments])
    wire = score_group([replace(saved, result=plain)], Origin(0, "g", "t")).to_wire()
    assert wire["generation_params"]["routed_experts"] is None


def test_another_shape_begins_anew():
    known, routed = np.zeros((4, 2, 2), dtype=np.uint8), np.ones((9, 3, 2), dtype=np.uint8)
    assert extend_experts(known, routed, 10).shape == (9, 3, 2)
    assert extend_experts(known, None, 10) is None
