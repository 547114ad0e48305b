"""A log for Inspect's viewer: every sample of the evaluation, with its conversation and its score."""

import re

import orjson
from samples import rollout, task

from envs.records.atif import RolloutWriter
from envs.records.inspect_log import inspect_log, log_name
from envs.records.read import read_rollouts
from envs.records.stats import summarise

ABOUT = {"environment": "swe", "models": ["m"], "samples": {"tasks": 2, "samples_each": 2, "made": 3, "missing": 1}}


async def test_each_sample_is_there_once_with_its_conversation(tmp_path):
    async with RolloutWriter(tmp_path) as writer:
        for name in ("r-1", "r-2", "r-3", "left-over"):
            await writer.write(rollout(name, of=task("b" if name == "r-3" else "a"), reward=float(name == "r-2")))
    places = {("a", 1): "r-1", ("a", 0): "r-2", ("b", 0): "r-3"}
    summary = summarise({"a": [1.0, 0.0], "b": [0.0]}, about=ABOUT)
    log = orjson.loads(orjson.dumps(inspect_log(summary, places, read_rollouts(tmp_path))))
    assert [(one["id"], one["epoch"], one["metadata"]["rollout"]) for one in log["samples"]] == [
        ("a", 1, "r-2"),
        ("a", 2, "r-1"),
        ("b", 1, "r-3"),
    ]
    first = log["samples"][0]
    assert first["scores"]["verifier"]["value"] == 1.0
    assert {message["role"] for message in first["messages"]} <= {"system", "user", "assistant", "tool"}
    assert first["output"]["choices"][0]["message"]["role"] == "assistant"
    assert (log["version"], log["status"], log["eval"]["model"]) == (2, "success", "m")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\+00-00_swe_[0-9a-f]{32}\.json", log_name(log))
    assert log["results"]["scores"][0]["metrics"]["pass@1"]["value"] == 0.25
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (4, 3)
