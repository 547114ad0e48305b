"""Sandboxes that are claimed from warm pools."""

import pytest
from claims_controller import ClaimsController
from waiting import until

from sandboxes.base import DaemonUnavailable, Limits, SandboxDied, SandboxError, SandboxSpec
from sandboxes.kubernetes import claims
from sandboxes.kubernetes.examine import CLAIM_MANIFEST, examine
from sandboxes.kubernetes.options import PodOptions
from sandboxes.owner import PREFIX

pytestmark = pytest.mark.docker


@pytest.fixture
async def controller(server):
    async with ClaimsController(server).working() as one:
        yield one


def counts(server):
    return [len(server.objects[kind]) for kind in ("pods", "sandboxclaims", "sandboxwarmpools", "sandboxtemplates")]


async def test_a_sandbox_is_a_pod_of_a_pool_that_is_filled_again(make, server, controller, spec):
    async with make(warm=1) as backend:
        async with backend.open(spec) as cold:  # the pool is empty yet
            assert (await cold.exec("echo $COLOUR; pwd")).output == f"{spec.env.get('COLOUR', '')}\n/app\n"
        await until(lambda: counts(server) == [1, 0, 1, 1])
        [ready] = server.objects["pods"]
        await until(lambda: server.objects["pods"][ready]["status"]["phase"] == "Running")
        async with backend.open(spec) as warm:
            assert warm.id == ready
            assert (await warm.exec("cat /proc/net/route | wc -l")).output == "1\n"
            [claim] = server.objects["sandboxclaims"].values()
            assert claim["spec"]["lifecycle"]["shutdownPolicy"] == "Delete"
            assert claim["metadata"]["labels"][PREFIX + "owner"] == backend.owner.id
            await until(lambda: len(server.objects["pods"]) == 2)
    assert counts(server) == [0, 0, 0, 0]


async def test_a_claim_is_prolonged_while_its_sandbox_is_open(make, server, controller, spec, monkeypatch):
    monkeypatch.setattr(claims, "_RENEW_S", 0.05)
    monkeypatch.setattr(claims, "_lifecycle", iter([{"shutdownTime": f"{n}"} for n in range(1000)]).__next__)
    async with make(warm=1) as backend, backend.open(spec):
        [claim] = server.objects["sandboxclaims"].values()
        await until(lambda: int(claim["spec"]["lifecycle"]["shutdownTime"]) > 2)


async def test_a_pod_that_was_started_again_under_its_name_is_another_one(make, server, controller, spec):
    async with make(warm=1) as backend, backend.open(spec) as box:
        await server.remove(box.id)
        await until(lambda: server.objects["pods"].get(box.id, {}).get("status", {}).get("phase") == "Running")
        with pytest.raises(SandboxDied):
            await box.exec("true")


async def test_without_the_controllers_types_the_option_is_refused_by_name(make, server):
    with pytest.raises(DaemonUnavailable, match=r"--env\.pods\.warm: .*no SandboxClaim.*install agent-sandbox"):
        async with make(warm=1):
            pass
    texts = [one.text async for one in examine(PodOptions(kubeconfig=str(server.kubeconfig), warm=1)) if not one.ok]
    assert [text for text in texts if "install agent-sandbox" in text]


async def test_a_missing_right_to_claims_has_its_sentence(server, controller):
    server.denied = {("patch", "sandboxclaims")}
    texts = [one.text async for one in examine(PodOptions(kubeconfig=str(server.kubeconfig), warm=1)) if not one.ok]
    assert texts == [f"you may not patch sandboxclaims in namespace boxes; {CLAIM_MANIFEST} grants it"]


async def test_a_silent_controller_is_named(make, server, controller, spec, monkeypatch):
    monkeypatch.setattr(claims, "_ANSWER_S", 0.5)
    controller.silent = True
    async with make(warm=1) as backend:
        with pytest.raises(DaemonUnavailable, match=r"no sandbox within .* no answer; .*--extensions"):
            async with backend.open(spec):
                pass
        controller.silent = False
        async with backend.open(spec) as box:
            assert (await box.exec("true")).ok


async def test_a_pool_that_somebody_removed_is_made_again(make, server, controller, spec, monkeypatch):
    async with make(warm=1) as backend:
        async with backend.open(spec):
            pass
        monkeypatch.setattr(claims, "_ANSWER_S", 3)
        server.objects["sandboxwarmpools"].clear()
        await until(lambda: not server.objects["pods"])
        with pytest.raises(SandboxError, match=r"got no sandbox .*WarmPoolNotFound: SandboxWarmPool not found"):
            async with backend.open(spec):
                pass
        async with backend.open(spec) as box:
            assert (await box.exec("true")).ok


@pytest.mark.parametrize("reason", ["InvalidMetadata", "VolumeClaimTemplatesError"])
async def test_a_refused_claim_says_why_at_once(make, controller, spec, monkeypatch, reason):
    monkeypatch.setattr(controller, "_bind", lambda name, pool: controller._say(name, reason=reason, message="no"))
    async with make(warm=1) as backend:
        with pytest.raises(SandboxError, match=f"its claim: {reason}: no"):
            async with backend.open(spec):
                pass


async def test_only_so_many_pods_stand_ready_and_used_pools_stay(make, server, controller, base_image, monkeypatch):
    monkeypatch.setattr(claims, "_READY", 2)
    every = [SandboxSpec(base_image, limits=Limits(memory_mb=100 + n)) for n in range(3)]
    async with make(warm=1) as backend, backend.open(every[0]):
        for spec in every[1:]:
            async with backend.open(spec):
                pass
        await until(lambda: counts(server)[1:] == [1, 2, 2])
        sizes = {
            one["spec"]["podTemplate"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
            for one in server.objects["sandboxtemplates"].values()
        }
        assert sizes == {"100Mi", "102Mi"}


async def test_pods_take_what_they_do_not_set_from_a_template_of_ones_own(make, server, controller, spec):
    theirs = {"containers": [], "runtimeClassName": "gvisor", "tolerations": [{"key": "a"}], "nodeSelector": {"b": "c"}}
    async with make(warm=1, sandbox_template="mine") as backend:
        with pytest.raises(SandboxError, match=r"--env\.pods\.sandbox_template mine: the cluster has none"):
            async with backend.open(spec):
                pass
        body = {"metadata": {"name": "mine"}, "spec": {"podTemplate": {"spec": theirs}}}
        server.add("sandboxtemplates", body)
        async with backend.open(spec) as box:
            pod = server.objects["pods"][box.id]["spec"]
    assert (pod["runtimeClassName"], pod["tolerations"], pod["nodeSelector"]["b"]) == ("gvisor", [{"key": "a"}], "c")
    assert [one["name"] for one in pod["containers"]] == ["box", "link"]
