"""The options of pods."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _builder(text: str) -> str:
    try:
        text.format(image="image", context="context")
    except (AttributeError, LookupError, ValueError) as error:
        raise ValueError("only {image} and {context} stand in braces; write others twice, as in ${{HOME}}") from error
    return text


class PodOptions(BaseModel):
    """How a cluster is reached, and how it runs sandboxes."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    kubeconfig: str = ""
    """Kubeconfig; by default kubectl's, or in a pod its service account"""
    context: str = ""
    """Context of the kubeconfig; by default its current one"""
    namespace: str = ""
    """Namespace of the pods; by default the context's"""
    image_prefix: str = ""
    """Prefix of images' names, such as mirror.example.org/"""
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """When nodes pull an image"""
    pull_secrets: list[str] = []
    """Secrets for pulling images"""
    registry: str = ""
    """Registry for images of Dockerfiles, such as registry.example.org/tasks; with builder"""
    builder: Annotated[str, AfterValidator(_builder)] = ""
    """Command that builds the Dockerfile in {context} and pushes it as {image}, such as 'docker buildx build --push -t
    {image} {context}'"""
    runtime_class: str = ""
    """RuntimeClass, such as gvisor or kata"""
    architecture: Literal["amd64", "arm64"] = "amd64"
    """Architecture of the nodes"""
    node_selector: dict[str, str] = {}
    """Labels of the nodes"""
    tolerations: list[dict[str, Any]] = []
    """Tolerations, as in a pod's manifest"""
    priority_class: str = ""
    """PriorityClass of the pods"""
    cpu_share: Annotated[float, Field(gt=0, le=1)] = 0.25
    """Share of the CPU limit that a pod requests"""
    memory_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the memory limit that a pod requests; below 1 a node can run out, and kills pods below their limit"""
    network_off: Literal["auto", "namespace", "policy"] = "auto"
    """How pods have no network: their interfaces are taken down, or a NetworkPolicy is made and tried; auto takes the
    first if the cluster admits NET_ADMIN"""
    network_probe: list[str] = []
    """Addresses (IPv4:PORT) that a pod without a network must not reach, beside its kubelet's"""
    warm: Annotated[int, Field(ge=0)] = 0
    """Pods of each kind that agent-sandbox's controller keeps ready; 0 needs no controller"""
    sandbox_template: str = ""
    """SandboxTemplate with more settings of those pods, such as affinities; with warm"""
    max_starts: Annotated[int, Field(ge=1)] = 16
    """Pods that are created or wait for room at the same time"""
    start_timeout_s: Annotated[float, Field(gt=0)] = 300.0
    """Longest start of a pod that has a node"""
    room_timeout_s: Annotated[float, Field(gt=0)] = 1200.0
    """Longest wait for room, in quota or on a node"""
    outage_timeout_s: Annotated[float, Field(gt=0)] = 300.0
    """Longest outage of the API server that sandboxes outlast"""
    deadline_s: Annotated[int, Field(ge=60)] = 86_400
    """Longest life of a pod"""
