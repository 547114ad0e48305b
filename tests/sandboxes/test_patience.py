"""A server that takes a connection and never answers is named while it is waited for, whatever it is."""

import asyncio
import contextlib

import pytest
from waiting import until

from envs.delivery.trainer_api import TrainerAPI
from sandboxes.e2b.options import E2BOptions
from sandboxes.e2b.server import check_server
from sandboxes.kubernetes.examine import examine
from sandboxes.kubernetes.options import PodOptions
from sandboxes.patience import patiently


async def of_a_cluster(url, tmp_path, monkeypatch):
    config = tmp_path / "config"
    config.write_text(
        f"{{clusters: [{{name: c, cluster: {{server: '{url}'}}}}], users: [{{name: u, user: {{token: t}}}}], "
        "contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}"
    )
    async for _ in examine(PodOptions(kubeconfig=str(config))):  # KUBECONFIG is read once in a process
        pass


async def of_e2b(url, tmp_path, monkeypatch):
    monkeypatch.setenv("E2B_API_KEY", "key")
    await check_server(E2BOptions(api_url=url))


async def of_the_trainer(url, tmp_path, monkeypatch):
    monkeypatch.setattr(TrainerAPI, "remind_s", 0.05)
    async with TrainerAPI(url) as api:
        await api.info()


@pytest.mark.parametrize("look", [of_a_cluster, of_e2b, of_the_trainer])
async def test_a_server_that_hangs_is_not_waited_for_in_silence(look, tmp_path, monkeypatch, caplog):
    async def hang(reader, writer):
        with contextlib.closing(writer):
            await reader.read()

    monkeypatch.setattr(patiently, "__defaults__", (None, 0.05))
    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        looking = asyncio.create_task(look(url, tmp_path, monkeypatch))
        await until(lambda: "has not answered for" in caplog.text or looking.done())
        looking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await looking
    assert f"at {url} has not answered for 0 s; waiting for it" in caplog.text


async def test_a_question_ends_with_the_wait_for_it():
    async def ask():
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    ended = asyncio.Event()
    with pytest.raises(TimeoutError):
        await patiently(ask(), "It", most_s=0.01)
    assert ended.is_set()
