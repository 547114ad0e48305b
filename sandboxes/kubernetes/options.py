"""The options of pods."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class PodOptions(BaseModel):
    """How a cluster is reached, and how it runs sandboxes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kubeconfig: str = Field(default="", description="Kubeconfig; by default kubectl's, or in a pod its service account")
    context: str = Field(default="", description="Context of the kubeconfig; by default its current one")
    namespace: str = Field(default="", description="Namespace of the pods; by default the context's")
    image_prefix: str = Field(default="", description="Prefix of images' names, such as mirror.example.org/")
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        default="IfNotPresent", description="When nodes pull an image"
    )
    pull_secrets: list[str] = Field(default=[], description="Secrets for pulling images")
    registry: str = Field(
        default="", description="Registry for images of Dockerfiles, such as registry.example.org/tasks; with builder"
    )
    builder: str = Field(
        default="",
        description="Command that builds the Dockerfile in {context} and pushes it as {image}, such as 'docker buildx "
        "build --push -t {image} {context}'",
    )
    runtime_class: str = Field(default="", description="RuntimeClass, such as gvisor or kata")
    architecture: Literal["amd64", "arm64"] = Field(default="amd64", description="Architecture of the nodes")
    node_selector: dict[str, str] = Field(default={}, description="Labels of the nodes")
    tolerations: list[dict[str, Any]] = Field(default=[], description="Tolerations, as in a pod's manifest")
    priority_class: str = Field(default="", description="PriorityClass of the pods")
    cpu_share: float = Field(default=0.25, gt=0, le=1, description="Share of the CPU limit that a pod requests")
    memory_share: float = Field(default=0.5, gt=0, le=1, description="Share of the memory limit that a pod requests")
    network_off: Literal["auto", "namespace", "policy"] = Field(
        default="auto",
        description="Guard of pods without a network: their own namespace is taken down, or the NetworkPolicy alone is "
        "relied on and tried; auto takes the first if the cluster admits NET_ADMIN",
    )
    network_probe: list[str] = Field(
        default=[],
        description="Addresses (IPv4:PORT) that a pod without a network must not reach, beside its kubelet's",
    )
    warm: int = Field(
        default=0,
        ge=0,
        description="Pods of each kind that agent-sandbox's controller keeps ready; 0 for none, then it isn't needed",
    )
    sandbox_template: str = Field(
        default="", description="SandboxTemplate with more settings of those pods, such as affinities; with warm"
    )
    max_starts: int = Field(default=16, ge=1, description="Pods that are created or wait for room at the same time")
    start_timeout_s: float = Field(default=300.0, gt=0, description="Longest start of a pod that has a node")
    room_timeout_s: float = Field(default=1200.0, gt=0, description="Longest wait for room, in quota or on a node")
    outage_timeout_s: float = Field(
        default=300.0, gt=0, description="Longest outage of the API server that sandboxes outlast"
    )
    deadline_s: int = Field(default=86_400, ge=60, description="Longest life of a pod")
