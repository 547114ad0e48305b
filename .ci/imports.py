"""Imports every module of the installed package. Only those of extras that are not installed may fail."""

import importlib
import os
import pkgutil
import sys
from pathlib import Path

PACKAGES = ("atropos_agent", "envs", "sandboxes", "tools")
# What the extras bring, and a pack: a client in it draws a terminal by pyte.
EXTRAS = {"torch", "gguf", "accelerate", "peft", "safetensors", "starlette", "uvicorn", "datasets", "pyarrow", "ray"}
EXTRAS |= {"trl", "verifiers", "verl", "harbor", "inspect_ai", "minisweagent", "kubernetes_asyncio", "mcp", "httpx2"}
EXTRAS |= {"skyrl", "openrlhf", "areal"}
EXTRAS |= {"prometheus_client", "opentelemetry.sdk", "opentelemetry.exporter", "pyte"}
EXECUTED = ("sandboxes/docker/executor/executor-amd64", "envs/swe/starter/create-notes/tests/test.sh")

for package in map(importlib.import_module, PACKAGES):
    [folder] = package.__path__
    if not Path(folder).is_relative_to(sys.prefix):
        sys.exit(f"{folder} is not the installed one")
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            parts = (error.name or "").split(".")
            if not EXTRAS & {".".join(parts[:end]) for end in (1, 2)}:
                sys.exit(f"{module.name} imports {error.name}, which the wheel does not require")
for program in EXECUTED:
    if not os.access(Path(folder).parent / program, os.X_OK):
        sys.exit(f"{program} can't be executed")
