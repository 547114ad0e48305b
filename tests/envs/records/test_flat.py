"""Rows say what their rollout said."""

import json

from samples import rollout

from envs.records.atif import to_atif
from envs.records.flat import rollout_row, token_rows, turn_rows
from envs.records.read import from_atif

SAVED = from_atif(to_atif(rollout()))


def test_a_rollout_is_one_row():
    row = rollout_row(SAVED)
    assert (row["id"], row["task"], row["group"], row["step"]) == ("r-1", "fix-the-sum", 7, 3)
    assert (row["reward"], row["verdict"], row["solved"]) == (1.0, 1.0, True)
    assert (row["model"], row["temperature"]) == ("smollm2", 1.0)
    assert (row["turns"], row["tool_errors"], row["engine_s"]) == (2, 1, 0.75)
    assert row["patch"].startswith("--- a/sum.py")
    assert json.loads(row["tests"])["test_zero"] == "missing"
    assert [message["role"] for message in json.loads(row["messages"])][:2] == ["system", "user"]


def test_turns_and_tokens_are_rows_of_their_own():
    first, second = turn_rows(SAVED)
    assert (first["rollout"], first["turn"], second["turn"]) == ("r-1", 0, 1)
    assert json.loads(first["calls"])[0] == {"name": "terminal", "arguments": {"command": "cat sum.py"}}
    assert json.loads(first["results"])[1]["is_error"]
    (row,) = token_rows(SAVED)
    assert len(row["tokens"]) == len(row["masked_tokens"]) == len(row["logprobs"])
    assert row["reward"] == 1.0
