"""Prometheus finds a run's figures."""

import socket

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from samples import rollout

from envs.records.metrics import Metrics
from envs.running import monitoring
from envs.running.monitoring import check_monitoring, serve_metrics


def free_address():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


async def figures(address):
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
        assert answer.status == 200
        families = text_string_to_metric_families(await answer.text())
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value for one in families for sample in one.samples
        }


async def test_what_is_counted_is_what_prometheus_reads():
    metrics, address, own = Metrics(), free_address(), ("environment", "sums")
    async with serve_metrics(address, metrics, {"environment": "sums"}):
        assert (await figures(address))["atropos_rollouts_total", own] == 0
        metrics.count_rollout(rollout())
        metrics.count_failure('odd "kind"\n', step=1)
        metrics.states = {"working": 2}
        found = await figures(address)
    assert found["atropos_rollouts_total", own] == 1
    assert found["atropos_solved_total", own] == 1
    assert found["atropos_failures_by_kind_total", own, ("kind", 'odd "kind"\n')] == 1
    assert found["atropos_groups_by_state", own, ("state", "working")] == 2
    assert found["atropos_reward_mean", own] == 1.0
    with pytest.raises(aiohttp.ClientConnectorError):
        await figures(address)


async def test_an_address_that_is_taken_is_an_error():
    address = free_address()
    async with serve_metrics(address, Metrics(), {}):
        with pytest.raises(OSError, match=rf"--env.prometheus {address}: .*address already in use.*; give another"):
            async with serve_metrics(address, Metrics(), {}):
                pass


async def test_without_an_address_nothing_is_served():
    async with serve_metrics("", Metrics(), {}):
        pass


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(monitoring, "find_spec", lambda name: None)
    check_monitoring("")
    with pytest.raises(ValueError, match="pip install"):
        check_monitoring("127.0.0.1:1")
