"""Pods on the small API server of the tests' own."""

import asyncio
import time

import pytest
from api_server import ApiServer
from waiting import until

from sandboxes.base import (
    DaemonRestarted,
    ImageMissing,
    NotSupported,
    SandboxDied,
    SandboxEnded,
    SandboxError,
    SandboxSpec,
    SandboxTimeout,
)
from sandboxes.owner import PREFIX

pytest.importorskip("kubernetes_asyncio")
backends = pytest.importorskip("sandboxes.kubernetes.backend")

pytestmark = pytest.mark.docker


@pytest.fixture
async def server(tmp_path, base_image):
    async with ApiServer(tmp_path).serving() as serving:
        yield serving


@pytest.fixture
def make(server):
    def backend(**options):
        return backends.KubernetesBackend(pods={"kubeconfig": str(server.kubeconfig), **options})

    return backend


@pytest.fixture
def spec(base_image):
    return SandboxSpec(base_image, workdir="/app")


async def test_a_pod_is_a_sandbox_without_token_privileges_or_network(make, server, spec):
    async with make() as backend:
        async with backend.open(spec) as box:
            assert (await box.exec("pwd; id -u")).output == "/app\n0\n"
            await box.write_file("a/b", b"1")
            await box.upload(await box.download("/app"), "/copy")
            assert await box.read_file("/copy/a/b") == b"1"
            assert "eth0" not in (await box.exec("cat /proc/net/dev")).output
            pod = server.objects["pods"][box.id]
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert all(one["securityContext"]["capabilities"]["drop"] == ["ALL"] for one in pod["spec"]["containers"])
        assert pod["metadata"]["labels"][PREFIX + "owner"] == backend.owner.id
        await until(lambda: not server.objects["pods"])
    assert not server.objects["leases"]


async def test_a_cut_stream_is_taken_up_again_and_nothing_runs_twice(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        session = await box.session()
        await session.run("export KEPT=1")
        running = asyncio.create_task(box.exec("echo x >> /app/times; sleep 60"))
        await box.exec("until test -s /app/times; do sleep 0.05; done")
        await server.cut()
        with pytest.raises(DaemonRestarted, match="the cluster of sandbox"):
            await running
        assert (await box.exec("cat /app/times")).output == "x\n"
        assert (await session.run("echo $KEPT")).output == "1\n"


async def test_a_command_reaches_nobody_who_watches_from_inside(make, server, spec):
    """The relay is in another container: a command can neither see nor end it."""
    async with make() as backend, backend.open(spec) as box:
        result = await box.exec("kill -9 -1; echo alive")
        assert result.exit_code in (0, 137)
        assert (await box.exec("echo alive")).output == "alive\n"
        assert "relay" not in (await box.exec("cat /proc/[0-9]*/cmdline")).output


async def test_a_creation_is_repeated_after_refusals_that_pass_and_makes_one_pod(make, server, spec):
    async with make() as backend:
        server.refusals += [
            ("POST", "/pods", 429, "too many requests"),
            ("POST", "/pods", -500, "etcdserver: request timed out"),
        ]
        async with backend.open(spec) as box:
            assert (await box.exec("true")).ok
        assert len(server.created) == 1


async def test_room_in_the_quota_and_on_a_node_is_waited_for(make, server, spec):
    server.quota = 2
    server.room = 1
    async with make() as backend, asyncio.TaskGroup() as group:

        async def used():
            async with backend.open(spec) as box:
                assert (await box.exec("true")).ok

        for _ in range(4):
            group.create_task(used())


async def test_a_wait_for_room_ends_with_the_schedulers_words(make, server, spec):
    server.room = 0
    async with make(room_timeout_s=1) as backend:
        with pytest.raises(SandboxTimeout, match="did not wait for room within 1 s: 0/1 nodes"):
            async with backend.open(spec):
                pass
        assert not server.objects["pods"]


async def test_a_pod_that_is_deleted_or_evicted_is_no_commands_failure(make, server, spec):
    async with make() as backend:
        for how, words in (("deleted", "deleted from outside"), ("evicted", "was taken away")):
            async with backend.open(spec) as box:
                running = asyncio.create_task(box.exec("sleep 60"))
                await asyncio.sleep(0.5)
                if how == "deleted":
                    await server.remove(box.id)
                else:
                    server.change(
                        box.id, phase="Failed", reason="Evicted", message="The node was low on resource: memory"
                    )
                    await server.cut()
                with pytest.raises(SandboxDied, match=words) as caught:
                    await running
                assert not isinstance(caught.value, SandboxEnded)


async def test_a_full_disk_is_the_sandboxes_own_end(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        message = "Pod ephemeral local storage usage exceeds the total limit of containers 2112Mi."
        server.change(box.id, phase="Failed", reason="Evicted", message=message)
        await server.cut()
        with pytest.raises(SandboxEnded) as caught:
            await box.exec("true")
        assert caught.value.limit == "disk"


async def test_the_watch_goes_on_after_its_place_is_gone(make, server, spec):
    async with make() as backend:
        server.gone_before = 10**9
        opening = asyncio.create_task(backend._acquire(backends.Kind.of(spec), spec))
        await asyncio.sleep(1.0)
        server.gone_before = 0
        await (await opening).discard()


async def test_a_dead_drivers_pods_are_removed_at_the_next_start(make, server, spec):
    async with make() as alive, alive.open(spec) as kept:
        dead = make()
        await dead.__aenter__()
        left = await dead._acquire(backends.Kind.of(spec), spec)
        for one in server.objects["leases"].values():
            if one["metadata"]["labels"][PREFIX + "owner"] == dead.owner.id:
                one["metadata"]["labels"][PREFIX + "start"] = "1"  # that process has ended
        assert left.name in server.objects["pods"]
        async with make():
            assert list(server.objects["pods"]) == [kept.id]
        await dead.__aexit__()


async def test_an_open_network_is_refused_where_policies_alone_would_close_it(make, server, spec):
    server.baseline = True
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with listening, make(network_probe=["127.0.0.1:1"]) as backend, backend.open(spec) as box:
        assert (await box.exec("true")).ok
        pod = server.objects["pods"][box.id]
    assert "NET_ADMIN" not in str(pod)
    assert list(server.objects["networkpolicies"]) == ["atropos-agent-no-network"]


async def test_an_absent_image_is_named(make, server):
    async with make() as backend:
        with pytest.raises(ImageMissing, match="no-such-image-at-all"):
            async with backend.open(SandboxSpec("no-such-image-at-all:1")):
                pass


async def test_the_images_user_is_the_sandboxes(make, server, base_image, docker_backend, tmp_path):
    context = tmp_path / "context"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {base_image}\nRUN useradd -m app\nWORKDIR /srv\nUSER app\n")
    image = await docker_backend.ensure_image(None, context)
    async with make() as backend, backend.open(SandboxSpec(image)) as box:
        assert (await box.exec("id -un; pwd; echo $HOME")).output == "app\n/srv\n/home/app\n"


async def test_a_dockerfile_is_refused_by_name_or_built_by_the_users_builder(make, base_image, tmp_path):
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\n")
    async with make() as backend:
        with pytest.raises(ImageMissing, match="push it to a registry"):
            await backend.ensure_image(None, tmp_path)
    async with make(
        registry="r.example.org/t", builder="echo {image} {context} > " + str(tmp_path / "said")
    ) as backend:
        built = await backend.ensure_image(None, tmp_path)
        assert (tmp_path / "said").read_text() == f"{built} {tmp_path}\n"
        assert built.startswith("r.example.org/t:")


async def test_files_of_a_task_without_a_dockerfile_are_there(make, base_image, tmp_path):
    (tmp_path / "readme").write_text("hello")
    async with make() as backend:
        image = await backend.ensure_image(base_image, tmp_path)
        async with backend.open(SandboxSpec(image)) as box:
            assert await box.read_file("readme") == b"hello"
            await box.write_file("readme", b"changed")
            await box.reset()
            assert await box.read_file("readme") == b"hello"


async def test_forks_and_folders_of_this_host_are_refused_by_name(make, spec, tmp_path):
    async with make() as backend, backend.open(spec) as box:
        with pytest.raises(NotSupported, match="can't be forked"):
            async with box.fork(2):
                pass
        with pytest.raises(NotSupported, match="folders of this host"):
            async with backend.open(SandboxSpec(spec.image, mounts={"/m": tmp_path})):
                pass


async def test_an_outage_of_the_api_server_while_a_tree_is_read_is_outlasted(make, server, spec):
    async with make() as backend, backend.open(spec) as box:
        await box.write_file("a", b"1")
        server.refusals += [("GET", "/exec", 503, "unavailable")] * 3
        start = time.monotonic()
        assert await box.download("/app")
        assert time.monotonic() - start > 0.2


async def test_without_a_right_the_message_names_it(make, server):
    server.refusals.append(("GET", "/leases", 403, 'leases is forbidden: User "u" cannot list'))
    with pytest.raises(SandboxError, match=r"cannot list.*docs/pods\.md"):
        async with make():
            pass
