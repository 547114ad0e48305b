"""The manifest of docs/kubernetes.md: its names fit together, and a run finds its nodes."""

from pathlib import Path

import yaml

from envs.config import RayOptions

CLUSTER = yaml.safe_load((Path(__file__).parents[4] / "docs/kubernetes/raycluster.yaml").read_text())
HEAD = CLUSTER["spec"]["headGroupSpec"]
(WORKERS,) = CLUSTER["spec"]["workerGroupSpecs"]


def test_it_is_a_cluster_of_kuberays():
    assert (CLUSTER["apiVersion"], CLUSTER["kind"]) == ("ray.io/v1", "RayCluster")


def test_what_is_mounted_is_a_volume_of_the_pod():
    for group in (HEAD, WORKERS):
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        mounted = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
        assert mounted == volumes


def test_a_worker_and_its_docker_daemon_have_one_socket():
    worker, docker = WORKERS["template"]["spec"]["containers"]
    (address,) = [one["value"] for one in worker["env"] if one["name"] == "DOCKER_HOST"]
    assert f"--host={address}" in docker["args"]
    (socket,) = [mount for mount in docker["volumeMounts"] if mount in worker["volumeMounts"]]
    assert address.startswith(f"unix://{socket['mountPath']}/")


def test_workers_are_where_there_is_docker_and_not_on_the_head():
    assert HEAD["rayStartParams"]["num-cpus"] == "0"
    assert "docker" not in str(HEAD["rayStartParams"])
    assert '\\"docker\\": 1' in WORKERS["rayStartParams"]["resources"]
    assert float(WORKERS["rayStartParams"]["num-cpus"]) >= RayOptions().resources["CPU"]


def test_no_port_is_opened_and_no_key_is_in_it():
    assert "containerPort" not in str(CLUSTER)
    assert HEAD["rayStartParams"]["dashboard-host"] == "127.0.0.1"
    named = [
        one["name"]
        for group in (HEAD, WORKERS)
        for c in group["template"]["spec"]["containers"]
        for one in c.get("env", [])
    ]
    assert named == ["DOCKER_HOST"]
