"""The index: it says what the rollouts say, follows them while they grow, and is made again where it is wrong."""

import shutil
import sqlite3

import pytest
from readers import reading_only, shared_folder
from samples import rollout
from shown_runs import GROUPS, indexed, member_of

from envs.records.atif import RolloutWriter
from envs.runs.index import FILE_NAME, Index


@pytest.fixture
def directory(run_dir, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns(f"{FILE_NAME}*"))
    return copy


def ids(index):
    with index.reading() as db:
        return [row["id"] for row in db.execute("SELECT id FROM rollouts ORDER BY place")]


def test_its_sums_are_those_of_the_rollouts(directory):
    every = [member_of(n, made, m) for n, made in enumerate(GROUPS) for m in range(len(made.rewards))]
    with indexed(directory).reading() as db:
        found = {row["step"]: dict(row) for row in db.execute("SELECT * FROM steps WHERE NOT evaluating")}
    for step in {one.seat.step for one in every}:
        mine = [one for one in every if one.seat.step == step]
        assert found[step]["rollouts"] == len(mine)
        assert found[step]["solved"] == sum(one.verdict.solved for one in mine)
        assert found[step]["reward"] == pytest.approx(sum(one.reward.value for one in mine))
        rows = [row for one in mine for row in one.result.segments]
        own = [p for row in rows for m, p in zip(row.masked_tokens, row.logprobs, strict=True) if m != -100]
        assert found[step]["sampled"] == len(own)
        assert found[step]["surprise"] == pytest.approx(-sum(own))
        assert found[step]["tokens"] == sum(len(row.tokens) for row in rows)
    assert found[1]["cheated"] == 1


async def test_what_is_newest_comes_first_and_what_is_new_before_what_is_old(directory):
    index = Index(directory)
    assert index.advance(1)
    assert ids(index) == ["e-1"]
    async with RolloutWriter(directory) as writer:
        await writer.write(rollout("new"))
    assert index.coverage().share < 1
    assert index.advance(1)
    assert ids(index) == ["e-1", "new"]
    while index.advance(1):
        pass
    assert len(ids(index)) == 17
    assert index.coverage().share == 1.0


def test_a_line_that_is_no_rollout_costs_itself_alone(directory):
    with (directory / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"torn\n[]\n{"extra": {"atropos_agent": {}}}\n\n')
    index = indexed(directory)
    assert len(ids(index)) == 16
    assert index.coverage().damaged == 3


async def test_other_rollouts_under_the_same_name_are_indexed_anew(directory, tmp_path):
    index = indexed(directory)
    (directory / "rollouts.jsonl").unlink()
    async with RolloutWriter(directory) as writer:
        for number in range(60):
            await writer.write(rollout(f"other-{number}"))
    while index.advance():
        pass
    assert len(ids(index)) == 60
    with index.reading() as db:
        assert db.execute("SELECT count(*) FROM words WHERE words MATCH 'haystack'").fetchone()[0] == 0


def test_a_damaged_index_is_made_again(directory):
    indexed(directory).close()
    (directory / FILE_NAME).write_bytes(b"no database" * 1000)
    assert len(ids(indexed(directory))) == 16


def test_beside_an_index_of_another_user_there_is_one_of_ours(directory, monkeypatch):
    monkeypatch.setattr("envs.runs.index.PATIENCE_S", 0.1)
    with shared_folder() as shared:
        shutil.copytree(directory, shared, dirs_exist_ok=True)
        index = indexed(shared)
        with index.reading() as db, (shared / "rollouts.jsonl").open("ab") as lines:
            db.execute("SELECT * FROM covered").fetchone()  # somebody looks at it
            lines.write(b"{}\n")
            lines.flush()
            with reading_only(shared):
                ours = indexed(shared)
                ours.close()
    assert ours.path != index.path


def test_where_the_directory_can_not_be_written_it_lies_elsewhere(directory, monkeypatch):
    connect = sqlite3.connect

    def refusing(path, **options):
        if str(path).startswith(str(directory)):
            raise sqlite3.OperationalError("unable to open database file")
        return connect(path, **options)

    monkeypatch.setattr(sqlite3, "connect", refusing)
    index = indexed(directory)
    assert len(ids(index)) == 16
    assert not (directory / FILE_NAME).exists()
    index.close()
    assert not index.path.exists()
