"""The Atropos trainer API as a client sees it.

Source: atroposlib/api/server.py.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import httpx

logger = logging.getLogger(__name__)

T = TypeVar("T")


class TrainerAPIError(RuntimeError):
    """The trainer API refused what was sent; sending it again would not help."""


class TrainerAPI:
    """A connection to the API at `url`. Use it as `async with`.

    `info` and `register` wait for the API and its trainer; the others raise httpx.HTTPError.
    """

    poll_s = 1.0
    """Pause between questions to an API that is not ready, in seconds."""
    remind_s = 15.0
    """How often a wait is logged, in seconds."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        # Asking for a batch can keep the API busy for tens of seconds.
        self._http = httpx.AsyncClient(base_url=self.url, timeout=httpx.Timeout(120.0, connect=5.0))

    async def __aenter__(self) -> TrainerAPI:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    async def register(self, *, name: str, max_token_length: int, weight: float, group_size: int) -> dict[str, Any]:
        """Register an environment, waiting for the trainer to ask for a batch. Returns the API's answer, in
        which `wandb_name` is `name` with the number of earlier registrations under it."""
        body = {
            "desired_name": name,
            "max_token_length": max_token_length,
            "weight": weight,
            "group_size": group_size,
            "min_batch_allocation": None,
        }

        async def ask() -> dict[str, Any] | None:
            answer = await self._json("POST", "/register-env", json=body)
            return answer if answer.get("status") == "success" else None

        return await self._wait(ask, "a trainer to register with it and ask for a batch")

    async def info(self) -> tuple[int, int]:
        """The trainer's batch size and longest row (-1: no limit), waiting until it has registered."""

        async def ask() -> tuple[int, int] | None:
            answer = await self._json("GET", "/info")
            if answer["batch_size"] > 0:
                return answer["batch_size"], answer["max_token_len"]
            if (await self._json("GET", "/status"))["queue_size"] > 0:
                # A group came between a reset and the trainer's registration, which it now keeps out.
                logger.warning("trainer API at %s: it holds groups that no trainer can get; emptying it", self.url)
                await self._http.get("/reset_data")
            return None

        return await self._wait(ask, "a trainer to register with it")

    async def status(self, env_id: int) -> dict[str, Any]:
        """Queue size, step and weight as the API sees them. An API that does not know the environment fails."""
        return await self._json("GET", "/status-env", json={"env_id": env_id})

    async def disconnect(self, env_id: int) -> None:
        """Take an environment out of the API's scheduling, in which a dead one would keep its weight."""
        await self._http.post("/disconnect-env", json={"env_id": env_id}, timeout=5.0)

    async def send(self, env_id: int, body: bytes) -> None:
        """Deliver a group, in one try. `body`: gzip of its JSON without the first brace. Raises
        TrainerAPIError when it is refused."""
        # A gzip file may have several members, so that a body is packed once whatever the id.
        content = gzip.compress(b'{"env_id":%d,' % env_id, 1) + body
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        response = await self._http.post("/scored_data", content=content, headers=headers)
        if 400 <= response.status_code < 500 and response.status_code not in (408, 425, 429):
            raise TrainerAPIError(f"the trainer API refused a group: {response.status_code} {response.text[:500]}")
        response.raise_for_status()

    async def latest(self) -> str | None:
        """The `delivery_id` of the group that the API stored last; None when it tells of none."""
        found = await self._json("GET", "/latest_example")
        params = found.get("generation_params")
        return params.get("delivery_id") if isinstance(params, dict) else None

    async def _json(self, method: str, path: str, **kwargs: Any) -> dict[str, Any]:
        response = await self._http.request(method, path, **kwargs)
        response.raise_for_status()
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise httpx.DecodingError(f"{self.url}{path} answered with something else than JSON; is it an Atropos API?")
        return answer

    async def _wait(self, ask: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Ask until there is an answer, saying now and then what is waited for."""
        reminded = -self.remind_s
        while True:
            try:
                answer = await ask()
                if answer is not None:
                    return answer
                problem = f"waiting for {what}"
            except (httpx.HTTPError, KeyError, TypeError) as error:
                problem = f"no answer ({type(error).__name__}), is it running? Start it with `run-api`; waiting for it"
            if time.monotonic() - reminded >= self.remind_s:
                logger.warning("trainer API at %s: %s", self.url, problem)
                reminded = time.monotonic()
            await asyncio.sleep(self.poll_s)
