"""`export --to TRAINER` writes the complete groups of a run, scored as the run scores them."""

import json
from dataclasses import replace

import pytest
from row_samples import TASK, rollout

from envs.delivery.exports import ROWS, WITHOUT_RATIOS
from envs.records.atif import RolloutWriter
from envs.running.exporting import main, scored_groups
from envs.running.group import Group
from envs.running.journal import Journal
from envs.tasks.sampler import Draw
from envs.types import GroupState, Seat


@pytest.fixture
async def run(tmp_path):
    """Two complete groups, the first of which was begun again, one that is not complete, and an evaluation."""
    folder = tmp_path / "run"
    async with Journal(folder) as journal, RolloutWriter(folder) as writer:

        async def member(group, place, reward, rows, name):
            one = replace(rollout(reward, rows, name), seat=Seat(group.number, place, 4))
            await group.add(place, one, await writer.write(one))

        for number in range(3):
            group = await Group.draw(journal, lambda _: Draw(TASK))
            if number == 0:
                await member(group, 0, 1.0, 1, "forgotten")
                await group.restart()
            for place in range(3 - number // 2):
                await member(group, place, float(place == 0), 2 - place % 2, f"r{number}{place}")
            if number < 2:
                await group.close(GroupState.EQUAL if number else GroupState.DELIVERED, "")
        await writer.write(replace(rollout(1.0, 1, "tried"), seat=Seat(evaluating=True)))
    return folder


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_rows_of_complete_groups_are_written_with_the_name_of_the_run(run, tmp_path, capsys):
    assert main([str(run), str(tmp_path / "deep/out.jsonl"), "--to", "tinker"]) == 0
    assert "10 lines of 2 groups: " in capsys.readouterr().out
    rows = lines(tmp_path / "deep/out.jsonl")
    with Journal.reading(run) as db:
        (name,) = db.execute("SELECT value FROM run WHERE key = 'id'").fetchone()
    assert {row["group_id"] for row in rows} == {f"{name}-0", f"{name}-1"}
    assert {row["rollout_id"] for row in rows} == {"r00", "r01", "r02", "r10", "r11", "r12"}
    assert all(row["rollout_advantage"] == pytest.approx(2**0.5) for row in rows if row["score"])


async def test_a_file_without_a_line_is_none(run, tmp_path, capsys):
    file = run / "rollouts.jsonl"
    file.write_text(file.read_text().replace('"reward":1.0', '"reward":0.0').replace('"value":1.0', '"value":0.0'))
    (run / "state.db").unlink()  # which knows places in the file
    for form, why in (("sft", "it takes solved rollouts"), ("preferences", "with different rewards")):
        assert main([str(run), str(tmp_path / "out"), "--to", form]) == 2
        said = capsys.readouterr().err
        assert f"--to {form} finds nothing to write in 3 groups of {run}" in said and why in said
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ROWS)
async def test_what_was_cut_off_the_distribution_is_no_row_for_ratios(run, tmp_path, capsys, form):
    file = run / "rollouts.jsonl"
    file.write_text(file.read_text().replace('"sampling":{}', '"sampling":{"top_p":0.5}'))
    (run / "state.db").unlink()  # which knows places in the file
    expected = 0 if form in WITHOUT_RATIOS else 2
    assert main([str(run), str(tmp_path / "out"), "--to", form]) == expected
    assert ("top_p 0.5 cuts unlikely tokens off" in capsys.readouterr().err) == (expected == 2)


@pytest.mark.parametrize("form", ROWS)
async def test_each_form_is_a_file(run, tmp_path, capsys, form):
    if form == "verl":
        parquet = pytest.importorskip("pyarrow.parquet")
    assert main([str(run), str(tmp_path / "out"), "--to", form]) == 0
    counts = {"trl": 10, "verl": 10, "verifiers": 6, "tinker": 10, "sft": 4, "preferences": 2}
    out = tmp_path / "out"
    assert (parquet.read_table(out).num_rows if form == "verl" else len(lines(out))) == counts[form]


async def test_a_damaged_rollout_costs_its_group_alone(run, tmp_path, caplog):
    file = run / "rollouts.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"r11", b"r1", 1))  # of the second group; what follows moves
    assert main([str(run), str(tmp_path / "out"), "--to", "trl"]) == 0
    assert 0 < len(lines(tmp_path / "out")) < 10
    assert "left out group 1 of" in caplog.text and "is damaged" in caplog.text
    file.write_bytes(whole[:50])
    assert main([str(run), str(tmp_path / "none"), "--to", "trl"]) == 2


async def test_without_a_journal_the_rollouts_say_which_groups_they_are_of(run, tmp_path):
    (run / "state.db").unlink()
    assert [len(group.rollouts) for group in scored_groups(run)] == [3, 3, 2]


async def test_advantages_are_those_of_the_runs_own_estimator(run):
    async with Journal(run) as journal:
        await journal.identify({}, {"estimator": "leave-one-out", "length_penalty": 0.0})
    first = next(iter(scored_groups(run))).scored.rows[0]
    assert (first.score, first.advantage) == (1.0, 1.0)


async def test_a_file_is_written_whole_or_not_at_all(tmp_path, capsys):
    async with RolloutWriter(tmp_path / "run") as writer:
        await writer.write(replace(rollout(1.0, 1, "tried"), seat=Seat(evaluating=True)))
    for _ in range(2):
        assert main([str(tmp_path / "run"), str(tmp_path / "out"), "--to", "trl"]) == 2
        assert "holds no complete group" in capsys.readouterr().err


async def test_rollouts_without_token_ids_are_refused_where_ids_are_needed(tmp_path, capsys):
    async with RolloutWriter(tmp_path / "run") as writer:
        for place in range(2):
            one = rollout(float(place), 1, f"r{place}")
            result = replace(one.result, segments=(), record=(), carries_tokens=False)
            await writer.write(replace(one, result=result, seat=Seat(0, place)))
    assert main([str(tmp_path / "run"), str(tmp_path / "out"), "--to", "trl"]) == 2
    assert "was made without token ids; --to preferences needs none" in capsys.readouterr().err
    assert main([str(tmp_path / "run"), str(tmp_path / "out"), "--to", "preferences"]) == 0
    (pair,) = lines(tmp_path / "out")
    assert (pair["chosen_rollout_id"], pair["rejected_rollout_id"]) == ("r1", "r0")


async def test_a_part_that_was_moved_away_costs_its_groups_alone(run, tmp_path, caplog):
    whole = (run / "rollouts.jsonl").read_bytes()
    first = whole.index(b'"r10"')
    first = whole.rindex(b"\n", 0, first) + 1  # of the second group
    (run / f"rollouts.{first}.jsonl").write_bytes(whole[first:])
    (run / "rollouts.jsonl").unlink()
    assert main([str(run), str(tmp_path / "out"), "--to", "trl"]) == 0
    assert {line["group_id"] for line in lines(tmp_path / "out")} == {1}
    assert "left out group 0 of" in caplog.text
