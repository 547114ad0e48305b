"""Which run a directory holds."""

import shutil
import sqlite3

import pytest
from packets import fill_outbox

from envs.running.database import RunDirectoryError
from envs.running.journal import Journal


@pytest.mark.parametrize("how", ["emptied", "deleted", "emptied with its lock", "replaced by a new one"])
async def test_a_file_that_was_emptied_begins_no_new_run(tmp_path, how):
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(3))
    path = tmp_path / "state.db"
    path.unlink()
    if how.startswith("emptied"):
        path.touch()
    if how == "emptied with its lock":
        (tmp_path / "lock").write_bytes(b"")
        (tmp_path / "metrics.json").write_bytes(b'{"states": {"outbox": 3}}')
    if how == "replaced by a new one":
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA journal_mode = WAL")
        db.close()
    for _ in range(2):
        with pytest.raises(RunDirectoryError, match=r"is empty.*give another --env\.run_dir"):
            async with Journal(tmp_path):
                pass


async def test_a_directory_with_an_evaluation_begins_a_run(tmp_path):
    (tmp_path / "metrics.json").write_bytes(b'{"states": {}}')
    async with Journal(tmp_path) as journal:
        name = await journal.run_id()
    async with Journal(tmp_path) as journal:
        assert await journal.run_id() == name


async def test_an_older_copy_of_the_file_is_refused_until_that_is_meant(tmp_path):
    async with Journal(tmp_path) as journal:
        await fill_outbox(journal, range(3))
    metrics = tmp_path / "metrics.json"
    metrics.write_bytes(b'{"states": {"delivered": 3, "working": 2, "taken": 4}}')
    async with Journal(tmp_path):
        pass
    metrics.write_bytes(b'{"states": {"outbox": 1, "delivered": 3}}')
    with pytest.raises(RunDirectoryError, match=r"knows of 3 finished groups, .* counts 4: it is an older copy"):
        async with Journal(tmp_path):
            pass
    (tmp_path / "state.db").write_bytes((tmp_path / "state.db").read_bytes()[:-4096])
    async with Journal(tmp_path) as journal:
        await journal.run_id()  # what is lost with damage is reported by the repair
    metrics.unlink()
    async with Journal(tmp_path):
        pass


async def test_the_file_of_another_run_is_refused(tmp_path):
    for name in ("one", "two"):
        async with Journal(tmp_path / name) as journal:
            await fill_outbox(journal, range(3))
            found = await journal.run_id()
    shutil.copy(tmp_path / "two/state.db", tmp_path / "one/state.db")
    for _ in range(2):
        with pytest.raises(
            RunDirectoryError, match=f"is of run {found}, and .*one is of run .*: bring that one's back"
        ):
            async with Journal(tmp_path / "one"):
                pass


async def test_a_run_is_continued_only_with_the_options_that_decide_about_it(tmp_path):
    async with Journal(tmp_path) as journal:
        assert not await journal.identify({"seed": 0, "group_size": 8})
        assert await journal.identify({"seed": 0, "group_size": 8})
        with pytest.raises(RunDirectoryError, match="group_size is 4, it was 8"):
            await journal.identify({"seed": 0, "group_size": 4})
