"""The backend of a real cluster, for the conformance suite: `--kubernetes KUBECONFIG` and `--pods OPTIONS`."""

import os

import yaml

from sandboxes.kubernetes.backend import KubernetesBackend

KUBECONFIG, PODS = "ATROPOS_TEST_KUBECONFIG", "ATROPOS_TEST_PODS"


def backend():
    options = {"kubeconfig": os.environ[KUBECONFIG]} | (yaml.safe_load(os.environ.get(PODS, "")) or {})
    return KubernetesBackend(pods=options, base_image="atropos-agent/base:debian12")
