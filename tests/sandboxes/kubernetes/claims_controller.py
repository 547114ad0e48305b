"""A small controller of claims for the tests' API server: pools of pods by a template, as agent-sandbox's keeps them.

It leaves out the objects between: a claim's sandbox is its pod. `python -m pytest --kubernetes` tries the real one."""

import asyncio
import copy
import itertools
from contextlib import asynccontextmanager, suppress

KINDS = ("sandboxclaims", "sandboxwarmpools", "sandboxtemplates")


class ClaimsController:
    """Works on a server's objects until the block ends. silent: it answers no claim."""

    def __init__(self, server) -> None:
        self.server = server
        self.silent = False
        self.claimed: dict[str, str] = {}
        self._ready: dict[str, list[str]] = {}
        self._numbers = itertools.count(1)

    @asynccontextmanager
    async def working(self):
        self.server.objects |= {kind: {} for kind in KINDS}
        task = asyncio.create_task(self._work())
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _work(self) -> None:
        while True:
            await self._reconcile()
            await asyncio.sleep(0.02)

    async def _reconcile(self) -> None:
        claims, pools, templates = (self.server.objects[kind] for kind in KINDS)
        pods = self.server.objects["pods"]
        for name, claim in list(claims.items()):
            if not self.silent and not claim.get("status", {}).get("sandbox"):
                self._bind(name, pools.get(claim["spec"]["warmPoolRef"]["name"]))
        for name, pod in list(self.claimed.items()):
            if name not in claims:
                await self.server.remove(self.claimed.pop(name))
            elif pod not in pods and (pool := pools.get(claims[name]["spec"]["warmPoolRef"]["name"])):
                self._start(pod, pool)  # as the real one does
        for name, pool in list(pools.items()):
            ready = self._ready.setdefault(name, [])
            ready[:] = [one for one in ready if one in pods]
            while pool["spec"]["sandboxTemplateRef"]["name"] in templates and len(ready) < pool["spec"]["replicas"]:
                ready.append(self._start(f"{name}-{next(self._numbers)}", pool))
        for name in self._ready.keys() - pools.keys():
            for pod in self._ready.pop(name):
                await self.server.remove(pod)

    def _bind(self, name: str, pool: dict | None) -> None:
        if pool is None:
            self._say(name, status="False", reason="WarmPoolNotFound", message="SandboxWarmPool not found")
            return
        ready = self._ready.get(pool["metadata"]["name"], [])
        running = [one for one in ready if self.server.objects["pods"].get(one, {}).get("status", {}).get("phase")]
        pod = running[0] if running else self._start(name, pool)
        if running:
            ready.remove(pod)
        self.claimed[name] = pod
        self.server.change(name, "sandboxclaims", sandbox={"name": pod})

    def _say(self, name: str, **ready: str) -> None:
        self.server.change(name, "sandboxclaims", conditions=[{"type": "Ready", **ready}])

    def _start(self, name: str, pool: dict) -> str:
        template = self.server.objects["sandboxtemplates"][pool["spec"]["sandboxTemplateRef"]["name"]]
        pod = copy.deepcopy(template["spec"]["podTemplate"])
        self.server.add("pods", {**pod, "metadata": {**pod["metadata"], "name": name}})
        return name
