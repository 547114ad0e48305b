"""Whoever meets a certificate that it can't trust says so in a sentence with the remedy, and waits for nothing."""

import ssl
from pathlib import Path

import aiohttp
import httpx
import pytest
from aiodocker import DockerError
from own_tls import as_python_3_13_trusts, authority, served

from atropos_agent.engines.completions import unreachable
from atropos_agent.engines.errors import NotThisServer
from atropos_agent.engines.http import HttpClient, NoAnswer
from envs.delivery.trainer_api import NotTrainerAPIError, TrainerAPI
from sandboxes.base import DaemonRefused, SandboxError
from sandboxes.docker.daemon import client
from sandboxes.remote.api import Api
from sandboxes.tls import explain_tls_failure

pytestmark = pytest.mark.usefixtures(as_python_3_13_trusts.__name__)


@pytest.fixture(scope="module")
def ca(tmp_path_factory):
    return authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.mark.parametrize(
    ("certificate", "sentence"),
    [
        ("expired", r"not trusted \(certificate has expired\); renew it there, or set this machine's clock"),
        (
            "of another host",
            r"not trusted \(IP address mismatch.*'127\.0\.0\.1'\); name it in DOCKER_HOST or --env\.hosts as",
        ),
    ],
)
async def test_a_docker_host_that_is_not_trusted_is_refused_with_the_remedy(ca, certificate, sentence, monkeypatch):
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "yes")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(ca))
    async with served(ca, certificate) as port:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
        with pytest.raises(DaemonRefused, match=sentence):
            async with client.connect():
                pass
    async with served(ca, "good") as port, client.connect(f"tcp://127.0.0.1:{port}") as docker:
        assert docker.docker_host.startswith("https://")


async def test_an_unknown_authority_and_unusable_certificates_are_named_with_their_folder(ca, tmp_path):
    other = authority(tmp_path / "other")
    async with served(ca, "good") as port:
        with pytest.raises(DaemonRefused, match=f"put its CA's certificate into {other}/ca.pem"):
            async with client.connect(f"tcp://127.0.0.1:{port}", other):
                pass
    (other / "key.pem").unlink()
    with pytest.raises(SandboxError, match=f"can't be used .*: {other} needs ca.pem"):
        async with client.connect("tcp://127.0.0.1:9", other):
            pass


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (
            "[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate (_ssl.c:2580)",
            "put one of its CA, and its key",
        ),
        ("Client sent an HTTP request to an HTTPS server.", "set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH"),
        ("Cannot connect to host a:2376", "None"),
    ],
)
def test_a_docker_daemons_refusal_of_us_has_its_remedy(said, remedy):
    assert remedy in str(client._explain_tls_failure(DockerError(900, {"message": said}), Path("certs")))


class Somebody(Api):
    name, remedy, address = "server", "", "--env.somebody"

    async def _headers(self):
        return {}


async def test_servers_that_are_not_trusted_are_refused_at_the_start(ca, monkeypatch):
    async with served(ca, "good") as port, aiohttp.ClientSession() as http:
        url = f"https://127.0.0.1:{port}"
        sentence = r"not trusted \(unable to get local issuer certificate\); set SSL_CERT_FILE to the file of its CA"
        with pytest.raises(DaemonRefused, match=sentence):
            await Somebody(http, url).request("GET", "/")
        with pytest.raises(NotTrainerAPIError, match=sentence):
            async with TrainerAPI(url) as api:
                await api.info()
        for remedy in ("set SSL_CERT_FILE to", "SSL_CERT_FILE names /no/such.pem, which is not there"):
            engine = HttpClient(url, timeout_s=5.0)
            with pytest.raises(NoAnswer) as caught:
                await engine.get("/")
            await engine.aclose()
            refused = unreachable(url, caught.value, "vLLM")
            assert isinstance(refused, NotThisServer)
            assert remedy in str(refused)
            monkeypatch.setenv("SSL_CERT_FILE", "/no/such.pem")


async def test_a_certificate_that_python_trusted_before_3_13_is_to_be_made_again(ca, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(ca / "ca.pem"))
    async with served(ca, "good") as port:
        url = f"https://127.0.0.1:{port}"
        engine = HttpClient(url, timeout_s=5.0)
        with pytest.raises(NoAnswer) as caught:
            await engine.get("/")
        await engine.aclose()
    refused = unreachable(url, caught.value, "vLLM")
    assert "key usage extension); make that certificate again as RFC 5280" in str(refused)


async def test_other_errors_are_none_of_certificates():
    async with httpx.AsyncClient() as http:
        with pytest.raises(httpx.ConnectError) as caught:
            await http.get("http://127.0.0.1:9")
    assert explain_tls_failure(caught.value, "it") is None
    assert explain_tls_failure(ssl.SSLError("another"), "it") is None
