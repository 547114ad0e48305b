"""Uses of a sandbox, wherever it is."""

from __future__ import annotations

from sandboxes.base import Sandbox


async def moves_files(box: Sandbox) -> None:
    assert (await box.exec("pwd; id -u")).output == "/app\n0\n"
    await box.write_file("a/b", b"1")
    await box.upload(await box.download("/app"), "/copy")
    assert await box.read_file("/copy/a/b") == b"1"


async def has_session_and_fork(box: Sandbox) -> None:
    assert (await box.exec("pwd")).output == "/app\n"
    data = bytes(range(256)) * 10_000
    await box.write_file("blob", data)
    assert await box.read_file("blob") == data
    shell = await box.session()
    await shell.run("cd /tmp; x=5")
    assert (await shell.run("echo $x $PWD")).output == "5 /tmp\n"
    async with box.fork(1) as (fork,):
        assert await fork.read_file("blob") == data
