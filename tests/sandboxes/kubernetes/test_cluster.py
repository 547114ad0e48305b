"""The way to a cluster."""

import asyncio
import sys

import pytest
import yaml
from own_tls import as_python_3_13_trusts, authority, served

from sandboxes.base import DaemonRefused, DaemonUnavailable
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.options import PodOptions

LONGEST_PAUSE = """
import asyncio, contextlib, sys, time
from sandboxes.base import DaemonUnavailable
from sandboxes.kubernetes.cluster import Cluster
from sandboxes.kubernetes.options import PodOptions

async def main():
    pauses = []
    async def ticks():
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            pauses.append(time.perf_counter() - before)
    ticking = asyncio.create_task(ticks())
    began = time.perf_counter()
    with contextlib.suppress(DaemonUnavailable):
        async with Cluster.connect(PodOptions(kubeconfig=sys.argv[1])):
            pass
    print(max(pauses), time.perf_counter() - began)

asyncio.run(main())
"""


async def test_the_library_is_imported_beside_the_event_loop(tmp_path):
    """In a process of its own, in which nothing has imported it yet."""
    pytest.importorskip("kubernetes_asyncio")
    done = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", LONGEST_PAUSE, str(tmp_path / "none")), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await done.communicate()
    longest_s, took_s = map(float, output.split())
    assert longest_s < took_s / 2


@pytest.fixture
def config():
    return pytest.importorskip("kubernetes_asyncio").config.kube_config


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, r"there is no kubeconfig .*/config; give --env.pods.kubeconfig FILE"),
        ("", "no cluster: TypeError"),
        ("only text", "no cluster: TypeError"),
        ("hello: [", "no cluster: ParserError"),
        (b"\xff", "no cluster: UnicodeDecodeError"),
    ],
)
async def test_a_file_that_is_no_kubeconfig_is_refused_with_the_option(config, tmp_path, text, expected):
    if text is not None:
        (tmp_path / "config").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DaemonUnavailable, match=expected):
        async with Cluster.connect(PodOptions(kubeconfig=str(tmp_path / "config"))):
            pass


async def test_no_kubeconfig_outside_of_a_pod_is_one_sentence(config, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(DaemonUnavailable, match=r"there is no kubeconfig .*none, and this is no pod"):
        async with Cluster.connect(PodOptions()):
            pass
    assert not caplog.records


async def test_several_files_in_the_variable_are_read_as_kubectl_reads_them(config, tmp_path, monkeypatch):
    for name in "ab":
        there = {"cluster": name, "user": name, "namespace": f"of-{name}"}
        (tmp_path / name).write_text(
            yaml.safe_dump(
                {
                    "current-context": "a",
                    "clusters": [{"name": name, "cluster": {"server": f"http://{name}"}}],
                    "users": [{"name": name, "user": {"token": "t"}}],
                    "contexts": [{"name": name, "context": there}],
                }
            )
        )
    monkeypatch.setattr(config, "KUBE_CONFIG_DEFAULT_LOCATION", f"{tmp_path}/a:{tmp_path}/b")
    async with Cluster.connect(PodOptions(context="b")) as cluster:
        assert (cluster.url, cluster.namespace) == ("http://b", "of-b")


@pytest.mark.usefixtures(as_python_3_13_trusts.__name__)
async def test_a_clusters_ca_needs_no_key_usage(config, tmp_path):
    ca = authority(tmp_path / "ca")
    async with served(ca, "good") as port:
        there = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ca / "ca.pem")}
        kubeconfig = {
            "current-context": "a",
            "clusters": [{"name": "a", "cluster": there}],
            "users": [{"name": "a", "user": {"token": "t"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(kubeconfig))
        async with Cluster.connect(PodOptions(kubeconfig=str(tmp_path / "config"))) as cluster:
            assert await cluster.request("GET", "/version") == {"ApiVersion": "1.41", "Arch": "amd64"}


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"certificate-authority-data": "YWJ"}, {}),
        ({"certificate-authority-data": "aGVsbG8="}, {}),
        ({}, {"client-certificate-data": "aGVsbG8=", "client-key-data": "aGVsbG8="}),
    ],
)
async def test_a_certificate_that_is_none_is_one_sentence(config, tmp_path, cluster, user):
    write_kubeconfig(tmp_path / "config", {"server": "https://a"} | cluster, user)
    with pytest.raises(DaemonUnavailable, match=r"a certificate or key of the kubeconfig can't be read \("):
        async with Cluster.connect(PodOptions(kubeconfig=str(tmp_path / "config"))):
            pass


async def test_a_token_with_a_line_break_is_one_sentence(config, tmp_path):
    write_kubeconfig(tmp_path / "config", {"server": "http://a"}, {"token": "t\n"})
    async with Cluster.connect(PodOptions(kubeconfig=str(tmp_path / "config"))) as cluster:
        with pytest.raises(DaemonRefused, match="the token of the kubeconfig's user holds a line break"):
            await cluster.request("GET", "/version")


def write_kubeconfig(path, cluster, user):
    kubeconfig = {
        "current-context": "a",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    }
    path.write_text(yaml.safe_dump(kubeconfig))
