"""What a cluster lets us do is said before pods are needed."""

from pathlib import Path

import pytest
import yaml

from envs.cli.checks import Status
from envs.swe import doctor
from envs.swe.config import SWEEnvConfig
from envs.swe.environment import SWEEnv
from sandboxes.kubernetes.examine import (
    CLAIM_MANIFEST,
    CLAIM_RIGHTS,
    EVENT_MANIFEST,
    EVENT_RIGHTS,
    MANIFEST,
    RIGHTS,
    examine,
)
from sandboxes.kubernetes.options import PodOptions


@pytest.fixture
def options(server):
    return PodOptions(kubeconfig=str(server.kubeconfig))


async def found(options):
    return {one.name: (one.ok, one.text) async for one in examine(options)}


@pytest.mark.parametrize(
    ("manifest", "rights"), [(MANIFEST, RIGHTS), (CLAIM_MANIFEST, CLAIM_RIGHTS), (EVENT_MANIFEST, EVENT_RIGHTS)]
)
def test_the_examined_rights_are_those_of_the_manifests(manifest, rights):
    every = yaml.safe_load_all((Path(__file__).parents[3] / manifest).read_text())
    [role] = [one for one in every if one["kind"] == "Role"]
    granted = {(rule["apiGroups"][0], rule["resources"][0]): tuple(rule["verbs"]) for rule in role["rules"]}
    assert granted == rights


@pytest.mark.docker
async def test_each_thing_that_is_there_has_its_sentence_and_nothing_is_made(server, options):
    said = await found(options)
    assert list(said) == ["cluster", "rights", "namespace", "networks", "nodes"]
    assert all(ok for ok, _ in said.values())
    assert "v1.36.0" in said["cluster"][1] and "theirs taken down" in said["networks"][1]
    assert said["nodes"][1].endswith("can be read")
    assert not any(server.objects.values())


@pytest.mark.docker
async def test_each_missing_right_has_its_sentence(server, options):
    server.denied = {("create", "pods/exec"), ("update", "leases")}
    missing = [one.text async for one in examine(options) if not one.ok]
    assert missing == [
        f"you may not {right} in namespace boxes; {MANIFEST} grants it"
        for right in ("create pods/exec", "update leases")
    ]


@pytest.mark.docker
async def test_sandboxes_can_be_had_without_the_events_of_nodes(server, options):
    server.denied = {("list", "events")}
    ok, text = (await found(options))["nodes"]
    assert ok and f"counts as at its own limit; {EVENT_MANIFEST} grants it" in text


@pytest.mark.docker
async def test_an_absent_namespace_and_a_guard_that_is_not_admitted_are_named(server, options):
    said = await found(options.model_copy(update={"namespace": "nowhere"}))
    assert said["namespace"][0] is False
    assert "no namespace nowhere; name another with --env.pods.namespace" in said["namespace"][1]
    server.baseline = True
    assert "NetworkPolicy closes it; each start tries" in (await found(options))["networks"][1]
    ok, text = (await found(options.model_copy(update={"network_off": "namespace"})))["networks"]
    assert not ok and "PodSecurity" in text


async def test_without_a_cluster_the_option_is_named(tmp_path):
    pytest.importorskip("kubernetes_asyncio")
    said = await found(PodOptions(kubeconfig=str(tmp_path / "none")))
    assert list(said) == ["cluster"] and "give --env.pods.kubeconfig FILE" in said["cluster"][1]


@pytest.mark.docker
async def test_doctor_runs_a_command_in_a_pod_of_a_tasks_image(server, options, base_image, tmp_path):
    task = tmp_path / "tasks" / "one"
    (task / "tests").mkdir(parents=True)
    (task / "tests/test.sh").write_text("true\n")
    (task / "instruction.md").write_text("Do it.")
    (task / "task.toml").write_text(f'[environment]\ndocker_image = "{base_image}"\n')
    config = SWEEnvConfig(tasks=str(task.parent), sandbox="kubernetes", pods=options)
    checks = {one.name: one async for one in doctor.surroundings(config)}
    assert [one.text for one in checks.values() if one.status is not Status.OK] == []
    assert f"the first command in one of {base_image} ended after" in checks["sandboxes"].text
    assert server.created and not server.objects["pods"]
    server.denied = {("create", "pods")}
    checks = {one.name: one async for one in doctor.surroundings(config)}
    assert checks["rights"].status is Status.WRONG and "sandboxes" not in checks


@pytest.mark.docker
async def test_a_run_begins_only_with_all_rights(server, options):
    config = SWEEnvConfig(sandbox="kubernetes", pods=options)
    await SWEEnv.preflight(config)
    server.denied = {("list", "leases")}
    with pytest.raises(ExceptionGroup) as caught:
        await SWEEnv.preflight(config)
    assert [str(one) for one in caught.value.exceptions] == [
        f"--env.sandbox kubernetes: you may not list leases in namespace boxes; {MANIFEST} grants it"
    ]
