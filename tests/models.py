"""Makes the models that tests use, where the cache doesn't have them: `python tests/models.py`."""

from __future__ import annotations

from atropos_agent.cpu_engine.model import DEFAULT_CACHE, locate
from envs.lab import smoke


def main() -> None:
    for name in ("tiny", "smollm2"):
        print(f"{name} ...", flush=True)
        locate(name)
    print("smoke ...", flush=True)
    smoke.model(DEFAULT_CACHE, lambda step, loss: print(f"smoke, step {step}, loss {loss:.2f}", flush=True))


if __name__ == "__main__":
    main()
