"""Agents side by side."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from rich.console import Console
from shown_runs import evaluated, make_run

from atropos_agent.types import AgentResult, StopReason
from envs.agents.table import Row, main, read_rows, table
from envs.records.read import SavedRollout
from envs.records.stats import summarise
from envs.types import Reward, Verdict


def rollout(task, reward, **metadata):
    result = AgentResult(True, "", (), StopReason.ANSWERED, (), (), metadata=metadata)
    return SavedRollout("r", task, result, Verdict(reward, ""), Reward(reward), timings_s={"agent": 4.0})


def text(*rows, k=1):
    console = Console(width=200, record=True, file=Path("/dev/null").open("w"))  # noqa: SIM115
    console.print(table(rows, k))
    console.file.close()
    return console.export_text()


def test_each_agent_has_a_row_of_its_means():
    told = {"agent": {"start_s": 1.5}}
    ours = Row("atropos", 1, [rollout("a", 1.0), rollout("b", 0.0)])
    theirs = Row("codex", 1, [rollout("a", 1.0, **told), rollout("b", 1.0, **told)])
    lines = text(ours, theirs).splitlines()
    assert any("atropos" in line and "50%" in line and "4.0" in line for line in lines)
    assert any("codex" in line and "100%" in line and "1.5 s" in line for line in lines)
    assert "not to be compared" not in text(ours, theirs)
    assert any("codex" in line and "+50%" in line for line in lines), "paired over the same tasks"


def test_what_is_not_of_the_same_tasks_and_model_is_not_to_be_compared():
    one = [rollout("a", 1.0)]
    assert "not to be compared" in text(Row("a", {"models": ["x"]}, one), Row("b", {"models": ["y"]}, one))


def test_pass_at_k_is_over_tasks_with_as_many_rollouts():
    row = Row("a", 1, [rollout("a", 1.0), rollout("a", 0.0), rollout("b", 1.0)])
    assert row.passes(2) == "100%"
    assert row.passes(3) == "—"


async def test_a_sample_that_was_made_again_after_a_kill_counts_once(tmp_path):
    """The first one was saved and not noted."""
    also = [evaluated("e-0", False, member=0), evaluated("e-1", False, member=1), evaluated("e-2", True, member=0)]
    run_dir = await make_run(tmp_path, also=also)
    (run_dir / "eval-0.json").write_bytes(orjson.dumps(summarise({"add-numbers": [1.0, 0.0]}).to_json()))
    (row,) = read_rows(run_dir)
    assert row.solved() == {"add-numbers": [True, False]}


async def test_the_agents_of_one_evaluation_are_in_the_order_of_their_option(tmp_path):
    """Whoever is done first: the first one is what the others are compared with."""
    made = [(evaluated(f"e-{agent}", True), agent) for agent in ("pi", "kilo", "codex")]
    also = [replace(one, seat=replace(one.seat, agent=agent)) for one, agent in made]
    run_dir = await make_run(tmp_path, also=also)
    about = {"sampling": {"agent": "codex:1,pi:2,kilo:1"}}
    (run_dir / "eval-0.json").write_bytes(orjson.dumps(summarise({"add-numbers": [1.0]}, about=about).to_json()))
    assert [row.agent for row in read_rows(run_dir)] == ["codex", "pi", "kilo"]


async def test_evaluations_of_one_agent_are_told_apart_by_their_directories(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        await make_run(tmp_path / name, also=[evaluated("e-0", True, member=0)])
        (tmp_path / name / "eval-0.json").write_bytes(orjson.dumps(summarise({"add-numbers": [1.0]}).to_json()))
    assert main(["one", "two"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "atropos of one" in shown and "atropos of two" in shown


def test_a_directory_without_an_evaluation_is_told(tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    err = capsys.readouterr().err
    why = "is no file of an evaluation (No such file or directory); `evaluate` writes eval-0.json"
    assert f"{tmp_path / 'eval-0.json'} {why}" in err
    with pytest.raises(SystemExit):
        main([])
    with pytest.raises(SystemExit):
        main([str(tmp_path), "-k", "0"])
    assert "-k: 0 is too small" in capsys.readouterr().err
