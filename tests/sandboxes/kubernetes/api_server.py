"""A small API server of the tests' own: pods, watch, exec by WebSocket; a pod is two containers of the Docker daemon.

docs/pods.md lists what it leaves out."""

from __future__ import annotations

import asyncio
import base64
import functools
import itertools
import json
import shutil
from contextlib import asynccontextmanager
from pathlib import Path

import yaml
from aiohttp import WSMsgType, web
from refusals import Refusals

from sandboxes.shielding import ending, finish

NEEDS_TYPE = {
    "pods": "Pod",
    "leases": "Lease",
    "configmaps": "ConfigMap",
    "networkpolicies": "NetworkPolicy",
    "events": "Event",
}


async def docker(*words: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        "docker",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with ending(process):
        said, _ = await finish(process.communicate())  # also when the server is closed meanwhile
    return process.returncode, said.decode().strip()


class ApiServer:
    """Objects by kind and name. refusals: answers to the next requests, each (method, part of the path, status,
    message). denied: rights that its user lacks, as (verb, resource). namespaces: that are there. room: of its node.
    quota: of its namespace, in pods. baseline: whether PodSecurity refuses NET_ADMIN. closes: whether it enforces
    policies. expired: watches that it has refused as too old."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects: dict[str, dict[str, dict]] = {kind: {} for kind in NEEDS_TYPE}
        self.refusals = Refusals()
        self.node_away = ""
        """Why no program can be started in a container, in the words of an API server."""
        self.room = 100
        self.quota = 100
        self.baseline = False
        self.closes = True
        self.denied: set[tuple[str, str]] = set()
        self.namespaces = {"boxes"}
        self.expired = 0
        self.gone_before = 0
        self.created: list[str] = []
        self.streams: set[web.WebSocketResponse] = set()
        self._boxes: dict[str, list[str]] = {}
        self._versions = itertools.count(1)
        self._events: list[dict] = []
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task] = set()

    @asynccontextmanager
    async def serving(self):
        app = web.Application(middlewares=[self._refusing])
        app.router.add_get("/version", self._say_version)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        for root in ("/api/v1", "/apis/{group}/{version}"):
            path = root + "/namespaces/{namespace}/{kind}"
            app.router.add_get(path, self._list)
            app.router.add_post(path, self._create)
            app.router.add_delete(path, self._delete_all)
            app.router.add_get(path + "/{name}", self._get)
            app.router.add_put(path + "/{name}", self._put)
            app.router.add_patch(path + "/{name}", self._patch)
            app.router.add_delete(path + "/{name}", self._delete)
            app.router.add_get(path + "/{name}/exec", self._exec)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "boxes"}}],
            "current-context": "c",
        }
        self.kubeconfig = self.folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        try:
            yield self
        finally:
            for name in list(self.objects["pods"]):
                await self.remove(name)
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=20)  # their pods are gone
            for task in self._tasks:
                task.cancel()
            await runner.cleanup()

    # What tests do to it

    def change(self, name: str, kind: str = "pods", **status: object) -> None:
        shown = self.objects[kind][name]
        shown["status"] = shown.get("status", {}) | status
        self._tell("MODIFIED", shown, kind)

    async def remove(self, name: str) -> None:
        pod = self.objects["pods"].pop(name, None)
        if pod is not None:
            await docker("rm", "-f", "-v", *(f"{name}-{one}" for one in ("box", "link")))
            self._tell("DELETED", pod)
            await self.cut(name)

    async def start_again(self, name: str) -> None:
        """Start the pod's box once more, with its files as in the image: some kubelets do after their own start."""
        words = self._boxes[name] = [*self._boxes[name]]
        await docker("rm", "-f", "-v", f"{name}-box")
        code, said = await docker("run", "--network", f"container:{name}-link", *words)
        assert not code, said
        [box, _] = self.objects["pods"][name]["status"]["containerStatuses"]
        self._tasks.add(asyncio.create_task(self._follow(name, box)))

    async def cut(self, name: str = "") -> None:
        """Cut every stream, or those of one pod, as a load balancer does."""
        for stream in list(self.streams):
            if name in stream._req.path and stream._req.transport is not None:
                stream._req.transport.abort()

    # Requests

    @web.middleware
    async def _refusing(self, request, handler):
        if (refusal := await self.refusals.of(request, handler)) is not None:
            return _failed(*refusal)
        if request.match_info.get("kind", "pods") not in self.objects:
            return _failed(404, "the server could not find the requested resource")
        return await handler(request)

    async def _say_version(self, request):
        return web.json_response({"gitVersion": "v1.36.0"})

    async def _review(self, request):
        body = await request.json()
        asked = body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        allowed = (asked["verb"], resource) not in self.denied
        return web.json_response(body | {"status": {"allowed": allowed}}, status=201)

    def _tell(self, what: str, shown: dict, kind: str = "pods") -> None:
        shown["metadata"]["resourceVersion"] = str(next(self._versions))
        self._events.append((kind, {"type": what, "object": json.loads(json.dumps(shown))}))
        self._news.set()
        self._news = asyncio.Event()

    def _matching(self, request) -> list[dict]:
        key, _, value = request.query.get("labelSelector", "").partition("=")
        every = list(self.objects[request.match_info["kind"]].values())
        for chosen in filter(None, request.query.get("fieldSelector", "").split(",")):
            path, _, wanted = chosen.partition("=")
            every = [one for one in every if functools.reduce(dict.__getitem__, path.split("."), one) == wanted]
        return [
            one
            for one in every
            if not key
            or (one["metadata"].get("labels", {}).get(key) or "") == value
            or (not value and key in one["metadata"].get("labels", {}))
        ]

    async def _list(self, request):
        if request.query.get("watch"):
            return await self._watch(request)
        version = str(next(self._versions))
        return web.json_response({"items": self._matching(request), "metadata": {"resourceVersion": version}})

    async def _watch(self, request):
        at = int(request.query["resourceVersion"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        if at < self.gone_before:
            self.expired += 1
            await answer.write(
                json.dumps({"type": "ERROR", "object": {"code": 410, "message": "too old"}}).encode() + b"\n"
            )
            return answer
        while True:
            news = self._news
            for kind, event in list(self._events):
                if kind != request.match_info["kind"]:
                    continue
                if int(event["object"]["metadata"]["resourceVersion"]) > at:
                    at = int(event["object"]["metadata"]["resourceVersion"])
                    await answer.write(json.dumps(event).encode() + b"\n")
            await news.wait()

    async def _create(self, request):
        kind, body = request.match_info["kind"], await request.json()
        name, every = body["metadata"]["name"], self.objects[kind]
        if (namespace := request.match_info["namespace"]) not in self.namespaces:
            return _failed(404, f'namespaces "{namespace}" not found')
        if kind == "pods" and self.baseline and "NET_ADMIN" in json.dumps(body):
            return _failed(403, f'pods "{name}" is forbidden: violates PodSecurity "baseline:latest"')
        if name in every:
            return _failed(409, "already exists")
        if kind == "pods" and len(every) >= self.quota:
            return _failed(403, "exceeded quota: boxes")
        if request.query.get("dryRun"):
            return web.json_response(body, status=201)
        self.add(kind, body)
        return web.json_response(body, status=201)

    def add(self, kind: str, body: dict) -> None:
        name = body["metadata"]["name"]
        self.objects[kind][name] = body
        body["metadata"] |= {"uid": f"{name}-{next(self._versions)}"}
        if kind == "pods":
            self.created.append(name)
            body["status"] = {"phase": "Pending"}
            task = asyncio.create_task(self._run(body))
            self._tasks.add(task)
        self._tell("ADDED", body, kind)

    async def _get(self, request):
        found = self.objects[request.match_info["kind"]].get(request.match_info["name"])
        return web.json_response(found) if found else _failed(404, "not found")

    async def _put(self, request):
        kind, name, body = request.match_info["kind"], request.match_info["name"], await request.json()
        if body["metadata"].get("resourceVersion") != self.objects[kind][name]["metadata"]["resourceVersion"]:
            return _failed(409, "the object has been modified")
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        self.objects[kind][name] = body
        return await self._get(request)

    async def _patch(self, request):
        kind, name, change = request.match_info["kind"], request.match_info["name"], await request.json()
        if name not in self.objects[kind] or request.content_type != "application/merge-patch+json":
            return _failed(404, "not found")
        self.objects[kind][name]["spec"] |= change["spec"]
        self._tell("MODIFIED", self.objects[kind][name], kind)
        return await self._get(request)

    async def _delete(self, request):
        kind, name = request.match_info["kind"], request.match_info["name"]
        if name not in self.objects[kind]:
            return _failed(404, "not found")
        if kind == "pods":
            await self.remove(name)
        else:
            self._tell("DELETED", self.objects[kind].pop(name), kind)
        return web.json_response({"status": "Success"})

    async def _delete_all(self, request):
        for one in self._matching(request):
            request.match_info["name"] = one["metadata"]["name"]
            await self._delete(request)
        return web.json_response({"status": "Success"})

    async def _exec(self, request):
        name, query = request.match_info["name"], request.query
        if name not in self.objects["pods"]:
            return _failed(404, "not found")
        socket = web.WebSocketResponse(protocols=("v5.channel.k8s.io",), max_msg_size=2 << 20)
        await socket.prepare(request)
        if self.node_away:  # as API servers say it that speak to kubelets themselves
            said = {"status": "Failure", "message": f"Internal error occurred: {self.node_away}", "code": 500}
            await socket.send_bytes(b"\3" + json.dumps(said).encode())
            await socket.close()
            return socket
        self.streams.add(socket)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *("docker", "exec", "-i", f"{name}-{query['container']}", *query.getall("command")),
            **{"stdin": pipe, "stdout": pipe, "stderr": pipe},
        )

        async def forward_to(stream, channel: bytes) -> None:
            while data := await stream.read(1 << 16):
                await socket.send_bytes(channel + data)

        async def finish() -> None:
            await asyncio.gather(forward_to(process.stdout, b"\1"), forward_to(process.stderr, b"\2"))
            code = await process.wait()
            causes = {"causes": [{"reason": "ExitCode", "message": str(code)}]}
            said = {"status": "Failure", "details": causes} if code else {"status": "Success"}
            await socket.send_bytes(b"\3" + json.dumps(said).encode())
            await socket.close()

        ending = asyncio.create_task(finish())
        try:
            async for message in socket:
                if message.type is WSMsgType.BINARY and message.data[:1] == b"\0":
                    process.stdin.write(message.data[1:])
                    await process.stdin.drain()
        except ConnectionError:
            pass
        finally:
            self.streams.discard(socket)
            process.stdin.close()
            await asyncio.wait({ending}, timeout=2)
            ending.cancel()
        return socket

    # Pods

    async def _run(self, pod: dict) -> None:
        name, spec, status = pod["metadata"]["name"], pod["spec"], pod["status"]
        while self._has(pod) and sum("hostIP" in o["status"] for o in self.objects["pods"].values()) >= self.room:
            unschedulable = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes",
            }
            if status.get("conditions") != [unschedulable]:
                status["conditions"] = [unschedulable]
                self._tell("MODIFIED", pod)
            await asyncio.sleep(0.1)
        if not self._has(pod):
            return
        status |= {"hostIP": "127.0.0.1", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        self._tell("MODIFIED", pod)
        place = self.folder / name
        config = self.objects["configmaps"][spec["volumes"][0]["configMap"]["name"]]
        await asyncio.to_thread(_put_executor, place, config)
        mount = ("-v", f"{place}:/.atropos:ro")
        for one in spec["initContainers"]:
            said = place / "said"
            await docker(
                *("run", "--rm", *mount, "-v", f"{said}:/dev/termination-log", "--entrypoint", one["command"][0]),
                *(one["image"], *one["command"][1:]),
            )
            ended = {"terminated": {"exitCode": 0, "message": await asyncio.to_thread(said.read_text)}}
            status["initContainerStatuses"] = [{"name": one["name"], "image": one["image"], "state": ended}]
        states = status["containerStatuses"] = []
        for one in spec["containers"]:
            network = f"container:{name}-box" if states else "none" if self._has_none(pod) else "bridge"
            rights = one["securityContext"]["capabilities"].get("add", ())
            words = [
                *("-d", "--name", f"{name}-{one['name']}", *mount, "--user", "0:0"),
                *("--security-opt", "no-new-privileges", "--cap-drop", "ALL", *(f"--cap-add={r}" for r in rights)),
                *(("--memory", one["resources"]["limits"]["memory"][:-1], "--pids-limit", "256") if not states else ()),
                *("--entrypoint", one["command"][0], one["image"], *one["command"][1:]),
            ]
            code, said = await docker("run", "--network", network, *words)
            if not states:
                self._boxes[name] = words
            if code:
                state = {"waiting": {"reason": "ErrImagePull", "message": f"{said}: not found"}}
            else:
                state = {"running": {"startedAt": "now"}}
            states.append({"name": one["name"], "image": one["image"], "state": state})
        if self._has(pod):
            self.change(name, phase="Running")
            await self._follow(name, states[0])
        elif name not in self.objects["pods"]:  # it was deleted while it started
            await docker("rm", "-f", "-v", *(f"{name}-{one['name']}" for one in states))

    def _has(self, pod: dict) -> bool:
        return self.objects["pods"].get(pod["metadata"]["name"]) is pod

    def _has_none(self, pod: dict) -> bool:
        return self.closes and "none" in json.dumps(pod["metadata"])

    async def _follow(self, name: str, box: dict) -> None:
        started = self._boxes[name]
        code, said = await docker("wait", f"{name}-box")
        if code or name not in self.objects["pods"] or self._boxes[name] is not started:
            return
        _, oom = await docker("inspect", "-f", "{{.State.OOMKilled}}", f"{name}-box")
        box["state"] = {"terminated": {"exitCode": int(said), "reason": "OOMKilled" if oom == "true" else "Error"}}
        self.change(name, phase="Failed" if int(said) else "Succeeded")


def _put_executor(place: Path, config: dict) -> None:
    shutil.rmtree(place, ignore_errors=True)  # an earlier pod of this name had one
    place.mkdir()
    (place / "said").touch()
    (place / "said").chmod(0o666)  # as a kubelet makes it, for images of any user
    (place / "executor").write_bytes(base64.b64decode(config["binaryData"]["executor"]))
    (place / "executor").chmod(0o555)


def _failed(status: int, message: str):
    return web.json_response({"kind": "Status", "message": message, "code": status}, status=status)
