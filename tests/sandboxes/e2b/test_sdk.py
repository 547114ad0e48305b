"""The published SDK on the small E2B server of the tests' own: so that server speaks as E2B does."""

import importlib

import pytest

pytestmark = pytest.mark.docker


async def test_the_published_sdk_works_with_the_tests_server(server):
    pytest.importorskip("e2b.sandbox_async")
    e2b = importlib.import_module("e2b")
    options = {"api_key": "e2b_" + "0" * 40, "api_url": server.url, "sandbox_url": server.url}
    box = await e2b.AsyncSandbox.create("atropos-tests", timeout=60, metadata={"a": "b"}, **options)
    await box.files.write("/tmp/x", "one")
    assert await box.files.read("/tmp/x") == "one"
    done = await box.commands.run("cat /tmp/x; echo two >&2")
    assert (done.stdout, done.stderr, done.exit_code) == ("one", "two\n", 0)
    with pytest.raises(e2b.CommandExitException) as caught:
        await box.commands.run("exit 3")
    assert caught.value.exit_code == 3
    reading = await box.commands.run("head -n 1", background=True, stdin=True)
    await reading.send_stdin("three\n")
    assert (await reading.wait()).stdout == "three\n"
    await box.set_timeout(100)
    listed = await e2b.AsyncSandbox.list(query=e2b.SandboxQuery(metadata={"a": "b"}), **options).next_items()
    assert [one.sandbox_id for one in listed] == [box.sandbox_id]
    assert await box.is_running()
    assert await box.kill()
    assert not await box.is_running()
