"""A sender of spans."""

import asyncio

import pytest
from otlp_receiver import OTLPReceiver

from envs.running.otlp import open_provider


@pytest.mark.parametrize("path", ["", "/", "/v1/traces"])
async def test_spans_go_to_the_receivers_place_for_them(path):
    with OTLPReceiver() as receiver:
        provider = open_provider(f"{receiver.url}{path}", {"service.name": "ours"})
        provider.get_tracer("scope").start_span("a span").end()
        await asyncio.to_thread(provider.shutdown)
        assert [span.name for span in receiver.spans] == ["a span"]
