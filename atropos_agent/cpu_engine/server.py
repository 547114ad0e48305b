"""Serve the embedded inference server over HTTP: the routes of `vllm serve` that an environment uses.

`GET /health`, `/version`, `/v1/models`, `/metrics`; `POST /v1/completions`. Two are the inference server's
own: `POST /load_weights {"path": …, "version": n}` swaps the weights between two steps, and
`GET /weight_version` names the ones in use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from atropos_agent.cpu_engine.model import ModelNotFound, is_adapter, read_weights
from atropos_agent.cpu_engine.protocol import (
    BadRequest,
    CompletionRequest,
    check_length,
    completion_body,
    error_body,
)
from atropos_agent.cpu_engine.sampling import SamplingParams
from atropos_agent.cpu_engine.scheduler import Engine, EngineStopped, FinishedSequence
from sandboxes.shielding import run_concurrently

logger = logging.getLogger(__name__)

PACKAGE_VERSION = version("atropos-agent")


class LoadWeightsRequest(BaseModel):
    """path: a model folder, a .safetensors file with all weights, or a LoRA adapter on top of the
    server's first model."""

    model_config = ConfigDict(extra="forbid")

    path: Path
    version: int


class Server:
    """The routes around one engine.

    name: the model's name in requests. path: its folder; the list of models shows it as `root`,
    so a client on this machine finds the tokenizer.
    """

    def __init__(self, engine: Engine, name: str, path: Path) -> None:
        self._engine = engine
        self._name = name
        self._path = path
        self._weights: Path | None = None
        self._created = int(time.time())

    def app(self) -> Starlette:
        """Return the application; the engine runs as long as it does."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/version", self.version),
                Route("/v1/models", self.models),
                Route("/metrics", self.metrics),
                Route("/v1/completions", self.completions, methods=["POST"]),
                Route("/load_weights", self.load_weights, methods=["POST"]),
                Route("/weight_version", self.weight_version),
            ],
            exception_handlers={
                BadRequest: _refuse,
                ValidationError: _refuse_fields,
                EngineStopped: _refuse_unavailable,
                404: _refuse_route,
            },
            lifespan=self._lifespan,
        )

    def abort(self) -> None:
        """Answer every request in work with 503, and take no more."""
        self._engine.abort()

    async def health(self, request: Request) -> Response:
        return Response(status_code=200 if self._engine.alive else 503)

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": PACKAGE_VERSION})

    async def models(self, request: Request) -> Response:
        card = {
            "id": self._name,
            "object": "model",
            "created": self._created,
            "owned_by": "atropos-agent",
            "root": str(self._path),
            "parent": None,
            "max_model_len": self._engine.model.max_model_len,
            "permission": [],
        }
        return JSONResponse({"object": "list", "data": [card]})

    async def metrics(self, request: Request) -> Response:
        """Return prometheus text, under the names of vLLM's metrics."""
        engine = self._engine
        gauges = {"num_requests_running": engine.running, "num_requests_waiting": engine.waiting}
        counters = {
            "prompt_tokens_total": engine.prompt_tokens,
            "generation_tokens_total": engine.generated_tokens,
            "prefix_cache_queries_total": engine.prompt_tokens,
            "prefix_cache_hits_total": engine.cached_tokens,
        }
        lines = []
        for kind, values in (("gauge", gauges), ("counter", counters)):
            for name, value in values.items():
                lines += [f"# TYPE vllm:{name} {kind}", f'vllm:{name}{{model_name="{self._name}"}} {float(value)}']
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def completions(self, request: Request) -> Response:
        body = CompletionRequest.model_validate_json(await request.body())
        if body.model not in (None, self._name):
            raise BadRequest(f"The model `{body.model}` does not exist.", param="model", status=404)
        model, tokenizer = self._engine.model, self._engine.tokenizer
        params = body.sampling()
        prompts = body.prompts(tokenizer)
        for prompt in prompts:
            check_length(prompt, params.max_tokens, model.vocab_size, model.max_model_len)
        work = asyncio.ensure_future(
            run_concurrently(self._generate(p, params, i) for p in prompts for i in range(body.n))
        )
        results = await _cancel_on_disconnect(request, work)
        if results is None:
            return Response(status_code=499)
        return JSONResponse(completion_body(body, self._name, prompts, results, tokenizer))

    async def load_weights(self, request: Request) -> Response:
        body = LoadWeightsRequest.model_validate_json(await request.body())
        try:
            weights = await asyncio.to_thread(self._read, body.path)
        except (OSError, ModelNotFound, ValueError, SafetensorError) as error:
            raise BadRequest(f"{body.path} can't be loaded: {error}", param="path") from error
        loop = asyncio.get_running_loop()
        swapped: asyncio.Future[Exception | None] = loop.create_future()
        self._engine.load_weights(weights, body.version, lambda e: loop.call_soon_threadsafe(swapped.set_result, e))
        misfit = await swapped
        if misfit is not None:
            raise BadRequest(f"{body.path} does not fit the model: {misfit}", param="path")
        self._weights = body.path
        logger.info("weights of version %d from %s", body.version, body.path)
        return await self.weight_version(request)

    async def weight_version(self, request: Request) -> Response:
        """Return the last values of `load_weights`; version 0 and no path for the server's first weights."""
        path = None if self._weights is None else str(self._weights)
        return JSONResponse({"version": self._engine.weight_version, "path": path})

    def _read(self, path: Path) -> Mapping[str, Any]:
        weights = read_weights(self._path, path) if is_adapter(path) else read_weights(path)
        for name, weight in weights.items():
            if not weight.isfinite().all():  # of a training that diverged: no reply could be sampled any more
                raise ValueError(f"{name} holds NaN or infinity")
        return weights

    async def _generate(self, prompt: list[int], params: SamplingParams, index: int) -> FinishedSequence:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[FinishedSequence] = loop.create_future()

        def resolve(result: FinishedSequence | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        ticket = self._engine.submit(prompt, params, lambda result: loop.call_soon_threadsafe(resolve, result), index)
        try:
            return await future
        finally:
            ticket.cancel()

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._engine.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._engine.stop)


async def _cancel_on_disconnect(
    request: Request, work: asyncio.Future[list[FinishedSequence]]
) -> list[FinishedSequence] | None:
    """Return the result of `work`, or None when the client went away first, which cancels the work."""
    gone = asyncio.create_task(_wait_for_disconnect(request))
    gone.add_done_callback(lambda _: work.cancel())
    try:
        return await work
    except asyncio.CancelledError:
        if gone.done() and not gone.cancelled():
            return None
        raise
    finally:
        work.cancel()
        gone.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _refuse(request: Request, error: Any) -> Response:
    return JSONResponse(error_body(str(error), error.status, error.param), status_code=error.status)


async def _refuse_fields(request: Request, error: Any) -> Response:
    problems = error.errors(include_url=False, include_context=False)
    message = "; ".join(f"{'.'.join(map(str, p['loc'])) or 'body'}: {p['msg']}" for p in problems)
    param = str(problems[0]["loc"][0]) if problems[0]["loc"] else None
    return JSONResponse(error_body(message, 400, param), status_code=400)


async def _refuse_unavailable(request: Request, error: Exception) -> Response:
    return JSONResponse(error_body(str(error), 503), status_code=503)


async def _refuse_route(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": "Not Found"}, status_code=404)
