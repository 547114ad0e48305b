"""Reset, fork, the warm pool and the disk limit."""

import pytest
from naps import count_of
from small_archives import members

from sandboxes.base import Sandbox, SandboxDied


class TestReset:
    async def test_files_processes_and_sessions_are_as_at_the_start(self, box):
        await box.write_file("made", b"1")
        await box.exec("echo changed >/app/changed; sleep 76543 >/dev/null 2>&1 &")
        shell = await box.session()
        await shell.run("cd /tmp")
        await box.reset()
        assert (await box.exec("ls -A")).output == ""
        left = count_of(76543)
        assert (await box.exec(left)).output == "0\n"
        with pytest.raises(SandboxDied):
            await shell.run("pwd")
        assert (await (await box.session()).run("pwd; echo $COLOUR")).output == f"{box.workdir}\ngreen\n"

    async def test_a_reset_sandbox_can_be_reset_again(self, box):
        for _ in range(3):
            await box.write_file("made", b"1")
            await box.reset()
            with pytest.raises(FileNotFoundError):
                await box.read_file("made")

    async def test_a_reset_sandbox_can_do_all_that_a_new_one_can(self, box):
        await box.write_file("made", b"1")
        await box.reset()
        await box.write_file("again", b"2")
        shell = await box.session()
        assert (await shell.run("cat again; echo changed >again; x=1")).output == "2"
        async with box.fork(1) as (branch,):
            assert await branch.read_file("again") == b"changed\n"
        assert members(await box.download("."))["again"].size == 8
        assert (await shell.run("echo $x; exit 3")).exit_code == 3

    async def test_a_branch_is_reset_to_what_it_began_with(self, kind, box):
        if kind == "local":
            pytest.skip("there it is reset to an empty folder")
        await box.write_file("file", b"forked")
        async with box.fork(1) as (branch,):
            await branch.write_file("file", b"changed")
            await branch.reset()
            assert await branch.read_file("file") == b"forked"


class TestFork:
    async def test_forks_have_its_files_and_are_apart(self, box):
        await box.exec("mkdir d; echo one >d/file; ln -s file d/link; chmod 750 d/file")
        async with box.fork(3) as forks:
            for number, fork in enumerate(forks):
                assert isinstance(fork, Sandbox)
                seen = await fork.exec("cat d/link; pwd; echo $COLOUR")
                assert seen.output == f"one\n{fork.workdir}\ngreen\n"
                assert members(await fork.download("d"))["file"].mode & 0o777 == 0o750
                await fork.write_file("mine", str(number).encode())
            assert [await fork.read_file("mine") for fork in forks] == [b"0", b"1", b"2"]
            with pytest.raises(FileNotFoundError):
                await box.read_file("mine")

    async def test_the_forked_one_runs_on(self, box):
        shell = await box.session()
        await shell.run("x=5; sleep 65432 & ")
        async with box.fork(1) as (fork,):
            await fork.exec("echo there")
            assert (await shell.run("echo $x; jobs >/dev/shm/jobs; wc -l </dev/shm/jobs")).output == "5\n1\n"

    async def test_a_fork_can_be_forked(self, box):
        await box.write_file("file", b"first")
        async with box.fork(1) as (child,):
            await child.write_file("file", b"second")
            async with child.fork(2) as grandchildren:
                assert [await g.read_file("file") for g in grandchildren] == [b"second"] * 2
            assert await box.read_file("file") == b"first"
