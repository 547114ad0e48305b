"""Hand an inference server the weights of a step, and make sure it keeps them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

logger = logging.getLogger(__name__)

POLICY = "policy"
"""vLLM's name for the adapter in training."""

RETRY_S = 2.0
"""Seconds between two looks at the inference server's weights."""

REREADING = (0, 33)
"""The first vLLM that reads an adapter loaded in place once. Older ones read it from disk for each token."""

REFUSALS = 5
"""Refusals in a row after which no other answer is expected."""


class WeightsRefusedError(Exception):
    """The inference server did not take the weights."""


class EmbeddedServer:
    """`python -m atropos_agent.cpu_engine`, for models and adapters by path.

    As in `VLLMServer`, methods raise httpx.HTTPError and WeightsRefusedError."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def has(self, folder: Path, version: int) -> bool:
        """Tell whether it samples from the weights in `folder`, those of step `version`."""
        answer = (await self._http.get("/weight_version")).raise_for_status().json()
        # Without a path they are what it started with, which is what a trainer starts with.
        return bool(answer["version"] == version and answer["path"] in (str(folder), None))

    async def load(self, folder: Path, version: int) -> None:
        """Use the weights in `folder` from now on, and no cached results of older ones."""
        answer = await self._http.post("/load_weights", json={"path": str(folder), "version": version})
        if not answer.is_success:
            raise WeightsRefusedError(f"/load_weights answered {answer.status_code}: {answer.text[:300]}")


class VLLMServer:
    """`vllm serve --enable-lora` with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and VLLM_SERVER_DEV_MODE=1.

    The adapter is served as the model `POLICY`; `/v1/models` gives the folder of its weights. The folder
    tells it from the adapter of another run. Source: vllm/entrypoints/openai/models/serving.py.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._cached = False
        """Whether it may still answer from caches of older weights."""
        self._warned = False

    async def has(self, folder: Path, version: int) -> bool:
        """Tell whether it samples from the weights in `folder`, those of step `version`."""
        models = (await self._http.get("/v1/models")).raise_for_status().json()["data"]
        loaded = any(model["id"] == POLICY and model.get("root") == str(folder) for model in models)
        return loaded and not self._cached

    async def load(self, folder: Path, version: int) -> None:
        """Use the weights in `folder` from now on, and no cached results of older ones."""
        if not self._warned:
            self._warned = True
            await self._warn_of_reload()
        self._cached = True
        body = {"lora_name": POLICY, "lora_path": str(folder), "load_inplace": True}
        answer = await self._http.post("/v1/load_lora_adapter", json=body)
        if not answer.is_success:
            raise WeightsRefusedError(
                f"/v1/load_lora_adapter answered {answer.status_code}: {answer.text[:300]}; is vLLM started with "
                "--enable-lora, a --max-lora-rank that suffices and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1?"
            )
        # Running requests hold blocks that older weights computed, for which it answers `success: false`: those are
        # put back then, and their prompts computed again.
        if not (await self._reset() or await self._reset("?reset_running_requests=true")):
            raise WeightsRefusedError("/reset_prefix_cache did not succeed; it may answer with older weights")
        self._cached = False

    async def _warn_of_reload(self) -> None:
        answer = await self._http.get("/version")
        version = str(answer.json().get("version", "")) if answer.is_success else ""
        if (numbers := re.match(r"(\d+)\.(\d+)", version)) and tuple(map(int, numbers.groups())) < REREADING:
            logger.warning(
                "vLLM %s reads the adapter from disk for each token, which took 12 times as long in a run on an H100: "
                "install vLLM 0.33 or later",
                version,
            )

    async def _reset(self, query: str = "") -> bool:
        answer = await self._http.post(f"/reset_prefix_cache{query}")
        if not answer.is_success:
            raise WeightsRefusedError(
                f"/reset_prefix_cache answered {answer.status_code}; is vLLM started with VLLM_SERVER_DEV_MODE=1?"
            )
        # Versions before 0.12 answer nothing but the status.
        return not answer.content or answer.json().get("success") is True


PolicyServer = EmbeddedServer | VLLMServer
"""An inference server, as far as weights go."""


async def policy_server(http: httpx.AsyncClient) -> PolicyServer:
    """Return the server at the client's address, by its answers. Raises httpx.HTTPError."""
    embedded = (await http.get("/weight_version")).status_code == httpx.codes.OK
    return EmbeddedServer(http) if embedded else VLLMServer(http)


async def hand_over(server: PolicyServer, folder: Path, version: int, *, force: bool = False) -> None:
    """Wait until the inference server samples from the weights in `folder`, those of step `version`.

    force: it loads them whatever it has. A silent server is waited for. Raises WeightsRefusedError when it goes on
    refusing.
    """
    refusals = 0
    while True:
        try:
            if force or not await server.has(folder, version):
                await server.load(folder, version)
                logger.info("the inference server has the weights of step %d", version)
            return
        except (httpx.HTTPError, WeightsRefusedError, ValueError, KeyError, TypeError) as error:
            refusals += not isinstance(error, httpx.TransportError)
            if refusals == REFUSALS:
                raise WeightsRefusedError(f"the inference server does not take weights: {error!r}") from error
            logger.warning("the inference server did not take the weights of step %d: %r; trying again", version, error)
        await asyncio.sleep(RETRY_S)


@asynccontextmanager
async def keep_current(server: PolicyServer, folder: Path, version: int) -> AsyncIterator[None]:
    """Hand the weights over again, while the block runs, whenever the inference server comes back without them."""
    watching = asyncio.create_task(_keep(server, folder, version))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _keep(server: PolicyServer, folder: Path, version: int) -> None:
    while True:
        try:
            await hand_over(server, folder, version)
        except WeightsRefusedError as error:
            logger.error("%s", error)
        await asyncio.sleep(RETRY_S)
