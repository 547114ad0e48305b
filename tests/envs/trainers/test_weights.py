"""Weights for the inference server: what counts as having them, what is done again, and when it is given up."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from envs.trainers import weights
from envs.trainers.weights import (
    EmbeddedServer,
    VLLMServer,
    WeightsRefusedError,
    hand_over,
    keep_current,
    policy_server,
)

FOLDER = Path("/run/trainer/step-000000")


class VLLM:
    """What vLLM says of adapters, by path. resets: what its prefix cache answers, in order, then `success`."""

    def __init__(
        self, adapter: str | None = None, resets: tuple[bool, ...] = (), loads: int = 200, version: str = "0.33.0"
    ) -> None:
        self.adapter = adapter
        self.resets = list(resets)
        self.loads = loads
        self.version = version
        self.asked: list[str] = []
        self.loaded = asyncio.Event()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url.raw_path.decode())
        match request.url.path:
            case "/v1/models":
                cards: list[dict[str, Any]] = [{"id": "base", "root": "/models/base", "parent": None}]
                if self.adapter is not None:
                    cards.append({"id": "policy", "root": self.adapter, "parent": "base"})
                return httpx.Response(200, json={"data": cards})
            case "/version":
                return httpx.Response(200, json={"version": self.version})
            case "/v1/load_lora_adapter":
                if self.loads == 200:
                    self.adapter = str(FOLDER)
                    self.loaded.set()
                return httpx.Response(self.loads, text="Success" if self.loads == 200 else "no such adapter")
            case "/reset_prefix_cache":
                return httpx.Response(200, json={"success": self.resets.pop(0) if self.resets else True})
        return httpx.Response(404)

    @property
    def changes(self) -> list[str]:
        return [path for path in self.asked if path not in ("/v1/models", "/weight_version", "/version")]


@asynccontextmanager
async def reached(handler: Any) -> Any:
    async with httpx.AsyncClient(base_url="http://there", transport=httpx.MockTransport(handler)) as http:
        yield await policy_server(http)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "RETRY_S", 0.0)


async def test_the_adapter_of_another_run_does_not_count_as_ours() -> None:
    async with reached(vllm := VLLM("/another/trainer/step-000000")) as server:
        assert isinstance(server, VLLMServer)
        await hand_over(server, FOLDER, 0)
        await hand_over(server, FOLDER, 0)
    assert vllm.adapter == str(FOLDER)
    assert vllm.changes == ["/v1/load_lora_adapter", "/reset_prefix_cache"]


async def test_a_prefix_cache_that_is_in_use_is_emptied_by_putting_requests_back() -> None:
    async with reached(vllm := VLLM(resets=(False,))) as server:
        await hand_over(server, FOLDER, 0)
    assert vllm.changes[1:] == ["/reset_prefix_cache", "/reset_prefix_cache?reset_running_requests=true"]


async def test_while_the_prefix_cache_is_not_emptied_the_weights_count_as_old() -> None:
    async with reached(vllm := VLLM(resets=(False, False))) as server:
        await hand_over(server, FOLDER, 0)
    assert vllm.changes.count("/v1/load_lora_adapter") == 2


async def test_a_server_that_goes_on_refusing_is_not_asked_for_ever() -> None:
    async with reached(vllm := VLLM(loads=400)) as server:
        with pytest.raises(WeightsRefusedError, match=r"--max-lora-rank"):
            await hand_over(server, FOLDER, 0)
    assert vllm.changes.count("/v1/load_lora_adapter") == weights.REFUSALS


async def test_a_server_that_is_away_is_waited_for() -> None:
    tries = []

    def away_at_first(request: httpx.Request) -> httpx.Response:
        tries.append(request)
        if 1 < len(tries) < 3 * weights.REFUSALS:
            raise httpx.ConnectError("refused")
        return vllm(request)

    vllm = VLLM()
    async with reached(away_at_first) as server:
        await hand_over(server, FOLDER, 0)
    assert vllm.adapter == str(FOLDER)


async def test_a_server_that_comes_back_without_the_policy_gets_it_again() -> None:
    async with reached(vllm := VLLM(str(FOLDER))) as server, keep_current(server, FOLDER, 0):
        vllm.adapter = None
        async with asyncio.timeout(120):
            await vllm.loaded.wait()
    assert vllm.adapter == str(FOLDER)


@pytest.mark.parametrize(
    ("said", "current"),
    [
        ({"version": 0, "path": None}, True),
        ({"version": 0, "path": "/another/trainer/step-000000"}, False),
        ({"version": 0, "path": str(FOLDER)}, True),
        ({"version": 4, "path": "/another/trainer/step-000004"}, False),
    ],
)
async def test_the_embedded_server_is_told_by_what_it_says_of_its_weights(said: Any, current: bool) -> None:
    async with reached(lambda request: httpx.Response(200, json=said)) as server:
        assert isinstance(server, EmbeddedServer)
        assert await server.has(FOLDER, 0) is current


@pytest.mark.parametrize(
    ("version", "slow"), [("0.23.0", True), ("0.33.0", False), ("1.0.1rc1+cu130", False), ("dev", False)]
)
async def test_a_vllm_that_reads_the_adapter_for_each_token_is_named_once(
    version: str, slow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    vllm = VLLM(version=version)
    async with reached(vllm) as server:
        await server.load(FOLDER, 0)
        await server.load(FOLDER, 1)
    assert caplog.text.count(f"vLLM {version} reads the adapter from disk for each token") == slow
