"""What a pod asks of its cluster."""

from sandboxes.base import Limits
from sandboxes.docker.executor.container import Kind
from sandboxes.kubernetes.manifest import pod
from sandboxes.kubernetes.options import PodOptions


def made(limits=None, takes_down=True, **options):
    kind = Kind("debian", limits or Limits(), switch_users=False)
    return pod("p", kind, PodOptions(**options), {}, {"name": "l"}, takes_down=takes_down, asks_user=False)["spec"]


def test_a_pod_has_the_least_rights():
    spec = made()
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    for one in spec["containers"]:
        assert one["securityContext"]["allowPrivilegeEscalation"] is False
        assert one["securityContext"]["capabilities"]["drop"] == ["ALL"]
    box, link = spec["containers"]
    assert "NET_ADMIN" not in box["securityContext"]["capabilities"]["add"]
    assert link["securityContext"]["capabilities"]["add"] == ["NET_ADMIN"]


def test_limits_are_the_tasks_and_requests_a_share_of_them():
    [box, _] = made(Limits(cpus=2, memory_mb=1000, disk_mb=100), cpu_share=0.1, memory_share=1)["containers"]
    assert box["resources"]["limits"] == {"cpu": "2000m", "memory": "1000Mi", "ephemeral-storage": "164Mi"}
    assert box["resources"]["requests"]["cpu"] == "200m"
    assert box["resources"]["requests"]["memory"] == "1000Mi"


def test_what_the_user_asks_of_nodes_is_in_the_pod():
    toleration = {"key": "spot", "operator": "Exists"}
    spec = made(
        **{"runtime_class": "gvisor", "node_selector": {"pool": "boxes"}, "tolerations": [toleration]},
        **{"pull_secrets": ["s"], "priority_class": "low", "image_prefix": "mirror.example.org/"},
    )
    assert spec["runtimeClassName"] == "gvisor"
    assert spec["nodeSelector"] == {"kubernetes.io/arch": "amd64", "pool": "boxes"}
    assert spec["tolerations"] == [toleration]
    assert spec["imagePullSecrets"] == [{"name": "s"}]
    assert spec["priorityClassName"] == "low"
    assert spec["containers"][0]["image"] == "mirror.example.org/debian"
