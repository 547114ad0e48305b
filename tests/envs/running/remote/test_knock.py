"""Whether a Ray cluster's head and this process agree on TLS; Ray itself would try without end."""

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress

import pytest
from own_tls import as_python_3_13_trusts, authority, certify

from envs.running.remote import knock as knocking
from envs.running.remote.knock import HeadRefusesError, knock

pytestmark = pytest.mark.usefixtures(as_python_3_13_trusts.__name__)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The folder of a cluster's CA and certificate."""
    folder = authority(tmp_path_factory.mktemp("tls") / "cluster")
    certify(folder, "good", "tls.key", "tls.crt")
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = authority(tmp_path_factory.mktemp("tls") / "other")
    certify(folder, "good", "tls.key", "tls.crt")
    return folder


def settings(folder):
    files = {"CA_CERT": "ca.pem", "SERVER_CERT": "tls.crt", "SERVER_KEY": "tls.key"}
    return {"RAY_USE_TLS": "1"} | {f"RAY_TLS_{name}": str(folder / file) for name, file in files.items()}


@asynccontextmanager
async def head(folder=None, greeting=b"settings"):
    """A head that greets as gRPC does, with TLS verified both ways if it has a folder. Yields its port."""
    tls = None
    if folder is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_verify_locations(folder / "ca.pem")
        tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        tls.verify_mode = ssl.CERT_REQUIRED

    async def greet(reader, writer):
        writer.write(greeting)
        with suppress(OSError):
            await reader.read()
        writer.transport.abort()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=tls) as server:
        yield str(server.sockets[0].getsockname()[1])
        await asyncio.sleep(0.05)  # its connections end


async def test_both_without_or_both_with_tls_agree(cluster):
    async with head() as port:
        await knock("127.0.0.1", port, {})
    async with head(cluster) as port:
        await knock("127.0.0.1", port, settings(cluster))


async def test_a_slow_head_without_tls_is_left_to_ray(monkeypatch):
    monkeypatch.setattr(knocking, "GREETING_S", 0.05)
    monkeypatch.setattr(knocking, "KNOCK_S", 0.05)
    async with head(greeting=b"") as port:
        await knock("127.0.0.1", port, {})


@pytest.mark.parametrize(
    "ours, said",
    [
        ({}, "it wants TLS; set RAY_USE_TLS=1, RAY_TLS_CA_CERT"),
        ({"RAY_TLS_CA_CERT": None}, "RAY_TLS_CA_CERT is not; name its file"),
        ({"RAY_TLS_SERVER_KEY": "/none"}, "RAY_TLS_SERVER_KEY can't be used: .*No such file"),
        ({"RAY_TLS_CA_CERT": "other"}, "not trusted .*RAY_TLS_CA_CERT"),
        ({"RAY_TLS_SERVER_CERT": "other", "RAY_TLS_SERVER_KEY": "other"}, "refuses our certificate"),
    ],
)
async def test_a_difference_is_named_with_the_remedy(monkeypatch, cluster, other, ours, said):
    monkeypatch.setattr(knocking, "GREETING_S", 0.5)
    environ = settings(cluster) if ours else {}
    for name, value in ours.items():
        del environ[name]
        if value is not None:
            environ[name] = settings(other)[name] if value == "other" else value
    async with head(cluster) as port:
        with pytest.raises(HeadRefusesError, match=said):
            await knock("127.0.0.1", port, environ)


async def test_a_head_without_tls_is_told_from_one_with_it(cluster):
    async with head() as port:
        with pytest.raises(HeadRefusesError, match="it has no TLS; unset RAY_USE_TLS"):
            await knock("127.0.0.1", port, settings(cluster))
