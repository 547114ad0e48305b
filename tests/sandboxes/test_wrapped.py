"""A sandbox around another one."""

import pytest
from small_archives import archive, content

from sandboxes.base import Sandbox, SandboxDied, SandboxSpec, Session
from sandboxes.local import LocalBackend
from sandboxes.wrapped import WrappedSandbox, WrappedSession


@pytest.fixture
async def inner():
    async with LocalBackend() as backend, backend.open(SandboxSpec("none", workdir="/app")) as box:
        yield box


async def test_everything_is_passed_on(inner):
    box = WrappedSandbox(inner)
    assert isinstance(box, Sandbox) and box.workdir == inner.workdir
    await box.write_file("a", b"1", mode=0o755)
    assert await inner.read_file("a") == await box.read_file("a", max_bytes=1) == b"1"
    assert (await box.exec("echo $A; test -x a", env={"A": "b"})).output == "b\n"
    await box.upload(archive({"x": b"2"}), "d")
    assert content(await box.download("d"), "x") == b"2"
    shell = WrappedSession(await box.session(cwd="d"))
    assert isinstance(shell, Session)
    assert (await shell.run("ls", timeout=10)).output == "x\n"
    await shell.close()
    async with box.start(["cat"], stdin=True) as process:
        await process.write(b"x")
        await process.close_stdin()
        assert (await process.wait()).output == "x"
    with pytest.raises(ConnectionRefusedError):
        async with box.connect(1):
            pass
    async with box.fork(1) as (fork,):
        assert await fork.read_file("d/x") == b"2"
    await box.reset()
    assert (await box.exec("ls")).output == ""
    await box.stop()
    with pytest.raises(SandboxDied):
        await inner.exec("true")


async def test_a_subclass_sees_what_it_asks_for(inner):
    seen = []

    class Seen(WrappedSandbox):
        async def exec(self, command, **options):
            seen.append(command)
            return await super().exec(command, **options)

    box = Seen(inner)
    assert (await box.exec("echo 1", timeout=5)).output == "1\n"
    assert seen == ["echo 1"]
