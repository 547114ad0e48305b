"""The environment's proxies: loopback is asked directly, whatever they are."""

import os
import sys

import httpx
import pytest

from atropos_agent.engines.http import proxy_of
from atropos_agent.engines.protocols import server_for
from envs.cli.program import read_env_file
from envs.delivery.trainer_api import TrainerAPI
from envs.messages import describe_error
from envs.options import EngineConfig
from envs.running.proxies import bypass_proxies_for_loopback

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch):
    for name in (*NAMES, *map(str.upper, NAMES)):
        monkeypatch.setenv(name, "")  # or what a test sets would stay
        monkeypatch.delenv(name)


@pytest.mark.parametrize("name", ["NO_PROXY", "no_proxy", None])
def test_loopback_is_asked_directly_and_other_hosts_as_before(monkeypatch, name):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    if name is not None:
        monkeypatch.setenv(name, "localhost,near.example")
    bypass_proxies_for_loopback()
    for host in ("localhost:1", "127.0.0.1:1", "[::1]:1"):
        assert proxy_of(f"http://{host}/v1") is None
        with httpx.Client() as client:
            assert client._transport_for_url(httpx.URL(f"http://{host}")) is client._transport
    assert proxy_of("http://far.example") == "http://127.0.0.1:9"
    assert (proxy_of("http://near.example") is None) == (name is not None)


@pytest.mark.parametrize("kind", ["openai", "anthropic", "trainer API"])
async def test_no_package_for_a_socks_proxy_is_missed_where_none_is_asked(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    bypass_proxies_for_loopback()

    def made(url):
        if kind == "trainer API":
            return TrainerAPI(url)
        return server_for(EngineConfig(base_url=url, server_type=kind, model_name="m", api_key="x"))

    near = made("http://127.0.0.1:8000/v1")
    await (near.close() if hasattr(near, "close") else near.__aexit__())
    with pytest.raises(ImportError) as caught:
        made("http://far.example/v1")
    assert "pip install 'httpx[socks]'" in describe_error(caught.value)


def test_an_environment_without_proxies_stays_as_it_is(monkeypatch):
    before = dict(os.environ)
    bypass_proxies_for_loopback()
    assert dict(os.environ) == before


def test_the_proxies_of_an_env_file_are_kept_off_loopback_too(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("http_proxy=http://127.0.0.1:9\nNO_PROXY=near.example\n")
    read_env_file()
    assert proxy_of("http://localhost:8000") is None and proxy_of("http://near.example") is None
    assert proxy_of("http://far.example") == "http://127.0.0.1:9"
