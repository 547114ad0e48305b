"""The Atropos trainer API as a client sees it. Nothing it says is believed before it is checked: each answer is
bounded in size and time and has a type.

Source: atroposlib/api/server.py.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

import httpx
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from atropos_agent.engines.http import client_of
from sandboxes.patience import patiently
from sandboxes.tls import explain_tls_failure

logger = logging.getLogger(__name__)

T = TypeVar("T")

SMALL = 2**20
"""The most bytes of an answer with figures."""

LARGE = 2**28
"""The most bytes of an answer with rows."""

REFUSALS = (400, 422)
"""Statuses about the request itself. Others are about the way there, such as the 404 of a server in between."""

TOO_LARGE = 413
"""The status of a server in between with a smaller limit for bodies. The API itself has no such limit."""


class GroupTooLargeError(httpx.HTTPError):
    """A server on the way to the API takes no groups of this size; the message names the remedy."""


NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, GroupTooLargeError)
"""Errors before anything can have arrived."""


class TrainerAPIError(RuntimeError):
    """The trainer API refused a request; sending it again would not help."""


class InvalidResponseError(httpx.DecodingError):
    """The API answered with something else than its protocol says."""


class NotTrainerAPIError(ConnectionError):
    """The server at the address has never been a trainer API; the message names the remedy."""


class ApiResponse(BaseModel):
    """An answer of the API. Other fields are ignored."""

    model_config = ConfigDict(frozen=True, strict=True)


ResponseT = TypeVar("ResponseT", bound=ApiResponse)

Count = Annotated[int, Field(ge=0, le=2**53)]


class TrainerInfo(ApiResponse):
    """The trainer's demands. batch_size: rows; -1 before it has registered. max_token_len: rows are shorter than this;
    not positive for no limit."""

    batch_size: int
    max_token_len: int


class RegisteredEnv(ApiResponse):
    """How the API knows us. wandb_name: our name with the number of earlier registrations under it."""

    env_id: Count
    wandb_name: str = Field(pattern=r"_[0-9]{1,15}$")
    starting_step: Count
    num_steps: int
    checkpoint_dir: str
    checkpoint_interval: int

    @property
    def earlier(self) -> int:
        """Return the registrations under our name before this one; 0 also if the API was restarted or emptied."""
        return int(self.wandb_name.rpartition("_")[2])


class EnvStatus(ApiResponse):
    """The API's figures of an environment. current_step: batches formed. queue_size, self_queue_size: packets in its
    queue, of all environments and of this one. env_weight: its share of the weights of all connected ones."""

    current_step: Count
    queue_size: Count
    self_queue_size: Count
    env_weight: float = Field(ge=0, allow_inf_nan=False)


class LogPlace(ApiResponse):
    """The trainer's place for logs: W&B's project and group, None without one."""

    project: str | None = None
    group: str | None = None


class _QueueResponse(ApiResponse):
    queue_size: Count


class _DisconnectResponse(ApiResponse):
    status: Literal["success", "failure"]


class _SendResponse(ApiResponse):
    status: Literal["received", "buffered"]


class _RegisterResponse(ApiResponse):
    status: str


class TrainerAPI:
    """A connection to the API at `url`. Use it as `async with`.

    `info` and `register` wait for the API and its trainer, but not for ever on another kind of server; the others raise
    httpx.HTTPError.
    """

    poll_s = 1.0
    """Pause between questions to an API not yet ready, in seconds."""
    remind_s = 15.0
    """How often a wait is logged, in seconds."""
    answer_s = 300.0
    """Time for a question and the whole of its answer, in seconds."""
    strange_answers = 60
    """The number of answers in a row, foreign to a trainer API, after which a server without any other answer is not
    one. A server in between, such as a proxy, answers for an API during its start."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        # Asking for a batch can keep the API busy for tens of seconds.
        self._http = client_of(self.url, timeout=httpx.Timeout(120.0, connect=5.0))
        self._stream: Any = None
        self._kept = False
        """Whether connections last for more than one question."""
        self._known = False
        """Whether it has ever answered as a trainer API."""
        self.renewed = 0
        """Number of replacements of a lasting connection: the server on the new one may be another."""

    async def __aenter__(self) -> TrainerAPI:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._http.aclose()

    async def register(self, *, name: str, max_token_length: int, weight: float, group_size: int) -> RegisteredEnv:
        """Register an environment, waiting for the trainer to ask for a batch."""
        body = {
            "desired_name": name,
            "max_token_length": max_token_length,
            "weight": weight,
            "group_size": group_size,
            "min_batch_allocation": None,
        }

        async def ask() -> RegisteredEnv | None:
            answer = await self._bytes("POST", "/register-env", json=body)
            if self._read(_RegisterResponse, "/register-env", answer).status != "success":
                return None
            return self._read(RegisteredEnv, "/register-env", answer)

        return await self._wait(ask, "a trainer to register with it and ask for a batch")

    async def info(self) -> TrainerInfo:
        """Return the trainer's demands, waiting until it has registered."""

        async def ask() -> TrainerInfo | None:
            answer = await self._ask(TrainerInfo, "GET", "/info")
            if answer.batch_size > 0:
                return answer
            if (await self._ask(_QueueResponse, "GET", "/status")).queue_size > 0:
                # A group came between a reset and the trainer's registration, which it now keeps out.
                logger.warning("trainer API at %s: it holds groups that no trainer can get; emptying it", self.url)
                await self._bytes("GET", "/reset_data")
            return None

        return await self._wait(ask, "a trainer to register with it")

    async def place(self) -> LogPlace:
        """Return the trainer's place for logs. Raises httpx.HTTPError."""
        return await self._ask(LogPlace, "GET", "/wandb_info")

    async def status(self, env_id: int) -> EnvStatus:
        """Return queue size, step and weight as the API sees them. Fails if the API does not know the environment."""
        return await self._ask(EnvStatus, "GET", "/status-env", json={"env_id": env_id})

    async def disconnect(self, env_id: int) -> None:
        """Take an environment out of the API's scheduling; a dead one would keep its weight there."""
        await self._ask(_DisconnectResponse, "POST", "/disconnect-env", json={"env_id": env_id}, timeout=5.0)

    async def send(self, env_id: int, body: bytes) -> bool:
        """Deliver a group, in one try. `body`: gzip of its JSON without the first brace. Returns whether the API has
        queued it; False: it lies in its buffer for groups of other sizes than the environment's. Raises TrainerAPIError
        when it is refused, one of NOT_SENT when nothing has arrived, also when the former server is gone; after
        other errors it may have been stored."""
        # A gzip file may have several members, so that a body is packed once whatever the id.
        content = gzip.compress(b'{"env_id":%d,' % env_id, 1) + body
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        if self._kept and self._stream.get_extra_info("is_readable"):
            raise httpx.ConnectError(f"{self.url} has closed the connection: another may answer by now")
        try:
            receipt = await self._ask(_SendResponse, "POST", "/scored_data", content=content, headers=headers)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == TOO_LARGE:
                raise GroupTooLargeError(
                    f"a group of {len(content) / 2**20:.1f} MiB is too large for what answers at {self.url} (413): "
                    "raise its limit (nginx: client_max_body_size); the group waits, and so do new ones in the end"
                ) from error
            if error.response.status_code not in REFUSALS:
                raise
            raise TrainerAPIError(f"the trainer API refused a group: {error}") from error
        return receipt.status == "received"

    async def latest(self) -> str | None:
        """Return the `delivery_id` of the group stored last by the API; None when it reports none."""
        body = await self._bytes("GET", "/latest_example", most=LARGE)
        try:
            found = await asyncio.to_thread(orjson.loads, body)
        except orjson.JSONDecodeError as error:
            raise self._invalid_response("/latest_example", body) from error
        params = found.get("generation_params") if isinstance(found, dict) else None
        name = params.get("delivery_id") if isinstance(params, dict) else None
        return name if isinstance(name, str) else None

    async def _ask(self, kind: type[ResponseT], method: str, path: str, **kwargs: Any) -> ResponseT:
        return self._read(kind, path, await self._bytes(method, path, **kwargs))

    def _read(self, kind: type[ResponseT], path: str, body: bytes) -> ResponseT:
        try:
            answer = kind.model_validate_json(body)
        except ValidationError as error:
            raise self._invalid_response(path, body) from error
        self._known = True
        return answer

    def _invalid_response(self, path: str, body: bytes) -> InvalidResponseError:
        return InvalidResponseError(f"{self.url}{path} answered {body[:80]!r}, which no Atropos API does")

    async def _bytes(self, method: str, path: str, *, most: int = SMALL, **kwargs: Any) -> bytes:
        """Return a whole answer. Raises HTTPStatusError, with the answer's beginning, for a failure."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.answer_s), self._http.stream(method, path, **kwargs) as response:
                self._note_connection(response.extensions.get("network_stream"))
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > most:
                        raise InvalidResponseError(f"{self.url}{path} answered with more than {most} bytes")
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"{self.url}{path} has not answered after {self.answer_s:g} s") from error
        if not response.is_success:
            text = bytes(body[:300]).decode("utf-8", "replace")
            message = f"{response.status_code} {text}"
            raise httpx.HTTPStatusError(message, request=response.request, response=response)
        return bytes(body)

    def _note_connection(self, stream: object) -> None:
        if stream is self._stream:
            self._kept = True
            return
        self.renewed += self._kept
        self._stream, self._kept = stream, False

    async def _wait(self, ask: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Ask until there is an answer, and log the reason of the wait now and then. Raises NotTrainerAPIError."""
        reminded, strange = -self.remind_s, 0
        while True:
            try:
                answer = await patiently(ask(), f"The trainer API at {self.url}", remind_s=self.remind_s)
                if answer is not None:
                    return answer
                problem = f"waiting for {what}"
            except (InvalidResponseError, httpx.HTTPStatusError) as error:
                problem = f"{error}; waiting for {what}"
                strange = strange + 1 if _is_foreign_response(error) else 0
                if strange >= self.strange_answers and not self._known:
                    raise NotTrainerAPIError(
                        f"what answers at {self.url} is no trainer API: {error}; start one with `run-api`, or give "
                        "--env.rollout_server_url the address of yours"
                    ) from error
            except httpx.HTTPError as error:
                if not self._known and (why := explain_tls_failure(error, "--env.rollout_server_url")) is not None:
                    raise NotTrainerAPIError(f"the trainer API at {self.url} can't be used: {why}") from error
                strange = 0
                problem = f"no answer ({type(error).__name__}), is it running? Start it with `run-api`; waiting for it"
            if time.monotonic() - reminded >= self.remind_s:
                logger.warning("trainer API at %s: %s", self.url, problem)
                reminded = time.monotonic()
            await asyncio.sleep(self.poll_s)


def _is_foreign_response(error: httpx.HTTPError) -> bool:
    """Tell whether an answer is foreign to any trainer API, also to one that is starting, busy or broken."""
    if not isinstance(error, httpx.HTTPStatusError):
        return True
    return 400 <= error.response.status_code < 500 and error.response.status_code not in (408, 425, 429)
