"""Show a run's figures to Prometheus: `/metrics`, in its text form."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec

from aiohttp import web

from envs.records.metrics import Metrics
from sandboxes.installing import install
from sandboxes.naming import lazy_import

_PROMETHEUS = lazy_import("envs.running.prometheus")


def check_monitoring(address: str) -> None:
    """Raise ValueError, with the remedy, if Prometheus is wanted and its library is not installed."""
    if address and find_spec("prometheus_client") is None:
        raise ValueError(f"--env.prometheus needs its library: {install('telemetry')}")


@asynccontextmanager
async def serve_metrics(address: str, metrics: Metrics, labels: Mapping[str, str]) -> AsyncIterator[None]:
    """Answer at `address` (HOST:PORT) with a run's figures while the block runs; nothing when it is "".

    labels: on every figure. Raises OSError if the address can't be had.
    """
    if not address:
        yield
        return
    prometheus = _PROMETHEUS()
    figures = prometheus.Figures(metrics, labels)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=figures.page(), headers={"Content-Type": prometheus.CONTENT_TYPE})

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = address.rpartition(":")
    try:
        try:
            await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        except OSError as error:
            why = error.strerror or error
            raise OSError(f"--env.prometheus {address}: {why}; give another address, or leave it out") from error
        yield
    finally:
        await runner.cleanup()
