"""Imports every module of the installed package; all but those of extras that are not installed must work."""

import importlib
import os
import pkgutil
import sys

# What the extras bring, and a pack: a client in it draws a terminal by pyte.
EXTRAS = {"torch", "gguf", "accelerate", "peft", "safetensors", "starlette", "uvicorn", "datasets", "pyarrow", "ray"}
EXTRAS |= {
    "trl",
    "verifiers",
    "verl",
    "harbor",
    "inspect_ai",
    "minisweagent",
    "kubernetes_asyncio",
    "mcp",
    "httpx2",
    "pyte",
}
EXTRAS |= {"prometheus_client", "opentelemetry.sdk", "opentelemetry.exporter"}
packages = [importlib.import_module(name) for name in ("atropos_agent", "envs", "sandboxes", "tools")]
for package in packages:
    [folder] = package.__path__
    assert folder.startswith(f"{sys.prefix}/lib"), folder
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            parts = (error.name or "").split(".")
            if not EXTRAS & {".".join(parts[:end]) for end in (1, 2)}:
                sys.exit(f"{module.name} imports {error.name}, which the wheel does not require")
[root] = {os.path.dirname(package.__path__[0]) for package in packages}
for program in ("sandboxes/docker/executor/executor-amd64", "envs/swe/starter/create-notes/tests/test.sh"):
    assert os.access(f"{root}/{program}", os.X_OK), f"{program} can't be executed"
