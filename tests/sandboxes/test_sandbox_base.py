"""The values of sandboxes, and what a sandbox may leave out."""

import pytest

from sandboxes.base import ExecResult, Limits, NotSupported, Sandbox


class TestLimits:
    def test_a_list_and_a_network_contradict_each_other(self):
        with pytest.raises(ValueError, match="mean nothing"):
            Limits(network=True, allowed_hosts=("x",))


class TestResults:
    def test_bytes_that_are_no_text_become_replacement_characters(self):
        result = ExecResult(0, b"a\xff")
        assert result.ok and result.output == "a\ufffd"


class Little(Sandbox):
    """A sandbox that has what is required and nothing else."""

    workdir = "/"

    async def exec(self, command, **options):
        return ExecResult(0, b"")

    async def read_file(self, path, **options):
        return b""

    async def write_file(self, path, data, **options):
        pass

    async def upload(self, archive, path):
        pass

    async def download(self, path, **options):
        return b""

    async def stop(self):
        pass


class TestWhatASandboxMayLeaveOut:
    async def test_it_says_so_and_what_to_do(self):
        box = Little()
        assert isinstance(box, Sandbox)
        with pytest.raises(NotSupported, match="Little has no sessions, which the terminal tool needs"):
            await box.session()
        with pytest.raises(NotSupported, match="can't be reset; open another"):
            await box.reset()
        with pytest.raises(NotImplementedError, match="can't be forked"):
            box.fork(2)
