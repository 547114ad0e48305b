"""The manifests of docs/pods.md: their names fit together, drivers and workers have no more rights than they use."""

from pathlib import Path

import yaml

from envs.config import RayOptions

FOLDER = Path(__file__).parents[4] / "docs/kubernetes"
OBJECTS = {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "raycluster.yaml").read_text())}
SANDBOXES = {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "pods-rbac.yaml").read_text())}
CLUSTER = OBJECTS["RayCluster"]
HEAD = CLUSTER["spec"]["headGroupSpec"]
(WORKERS,) = CLUSTER["spec"]["workerGroupSpecs"]
PODS = [group["template"]["spec"] for group in (HEAD, WORKERS)]


def test_it_is_a_cluster_of_kuberays():
    assert (CLUSTER["apiVersion"], CLUSTER["kind"]) == ("ray.io/v1", "RayCluster")


def test_what_is_mounted_is_a_volume_of_the_pod():
    for pod in PODS:
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        mounted = {mount["name"] for container in pod["containers"] for mount in container.get("volumeMounts", [])}
        assert mounted == volumes


def test_pods_are_admitted_where_the_strictest_standard_is_enforced():
    assert OBJECTS["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    for pod in PODS:
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert "hostPath" not in str(pod) and "docker" not in str(pod)


def test_drivers_and_workers_have_the_rights_to_sandboxes_and_no_others():
    account, binding = OBJECTS["ServiceAccount"]["metadata"], OBJECTS["RoleBinding"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    role = SANDBOXES["Role"]["metadata"]
    assert (binding["metadata"]["namespace"], binding["roleRef"]["name"]) == (role["namespace"], role["name"])
    assert account["namespace"] != role["namespace"]
    assert {pod["serviceAccountName"] for pod in PODS} == {account["name"]}


def test_only_rays_own_pods_reach_its_pods():
    (rule,) = OBJECTS["NetworkPolicy"]["spec"]["ingress"]
    assert rule == {"from": [{"podSelector": {"matchLabels": {"ray.io/cluster": CLUSTER["metadata"]["name"]}}}]}


def test_workers_are_not_on_the_head():
    assert HEAD["rayStartParams"]["num-cpus"] == "0"
    assert float(WORKERS["rayStartParams"]["num-cpus"]) >= RayOptions().resources["CPU"]


def test_no_port_is_opened_and_no_key_is_in_it():
    assert "containerPort" not in str(CLUSTER)
    assert HEAD["rayStartParams"]["dashboard-host"] == "127.0.0.1"
    assert "env" not in [key for pod in PODS for container in pod["containers"] for key in container]
