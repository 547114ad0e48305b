"""A small E2B server of the tests' own: its API's sandboxes, and envd's files and processes in each.

A sandbox is a container of the Docker daemon with more rights, in place of a virtual machine. Written after the
published OpenAPI file and process.proto; test_sdk.py drives it by the published SDK."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import struct
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qsl

from aiohttp import web
from refusals import Refusals

from sandboxes.shielding import ending, finish

TEMPLATE = "atropos-tests"
KEY = "e2b_" + "0" * 40
_HERE = "atropos-tests-e2b"


async def docker(*words: str, stdin: bytes = b"") -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        "docker",
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with ending(process):
        said, _ = await finish(process.communicate(stdin))  # also when the server is closed meanwhile
    return process.returncode, said.decode(errors="replace").strip()


class E2BServer:
    """image: of the template. mounts: what a virtual machine's template would hold beside it.

    refusals: answers to the next requests, each (method, part of the path, status, message); negative: it is done, and
    its answer is lost. token: whether it gives an access token for envd. memory: of a machine. groups:
    whether its root can make control groups."""

    def __init__(self, image: str, mounts: list[str]) -> None:
        self.image = image
        self.mounts = mounts
        self.sandboxes: dict[str, dict] = {}
        self.prolonged: list[str] = []
        self.refusals = Refusals()
        self.token = True
        self.memory = "1g"
        self.groups = True
        self.streams: list[web.Request] = []
        self._inputs: dict[int, asyncio.subprocess.Process] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task] = set()

    @asynccontextmanager
    async def serving(self):
        app = web.Application(middlewares=[self._refusing], client_max_size=64 << 20)
        app.router.add_post("/sandboxes", self._create)
        app.router.add_post("/v2/sandboxes", self._create)
        app.router.add_get("/v2/sandboxes", self._list)
        app.router.add_get("/sandboxes/{id}", self._get)
        app.router.add_delete("/sandboxes/{id}", self._kill)
        app.router.add_post("/sandboxes/{id}/timeout", self._prolong)
        app.router.add_get("/health", self._health)
        app.router.add_post("/files", self._write)
        app.router.add_get("/files", self._read)
        app.router.add_post("/process.Process/Start", self._start)
        app.router.add_post("/process.Process/SendInput", self._send_input)
        app.router.add_post("/process.Process/CloseStdin", self._close_stdin)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            for name in list(self.sandboxes):
                await self.remove(name)
            for task in self._tasks:
                task.cancel()
            await runner.cleanup()

    # What tests do to it

    async def remove(self, name: str) -> None:
        """End a sandbox, as the server does when its time is over."""
        if self.sandboxes.pop(name, None) is not None:
            await docker("rm", "-f", "-v", name)
            self.cut(name)

    def cut(self, name: str = "") -> None:
        """Cut every stream, or those of one sandbox, as a load balancer does."""
        for stream in list(self.streams):
            if name in stream.headers["E2b-Sandbox-Id"] and stream.transport is not None:
                stream.transport.abort()

    async def make(self, metadata: dict, internet: bool | None = None) -> dict:
        name = f"{_HERE}-{id(self):x}-{next(self._numbers)}"
        code, said = await docker(
            *("run", "-d", "--init", "--name", name, "--network", "none", "--memory", self.memory),
            *(f"--cap-add={right}" for right in ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE")),
            *(f"--security-opt={module}=unconfined" for module in ("seccomp", "apparmor")),
            *(word for mount in self.mounts for word in ("-v", mount)),
            *("--entrypoint", "/bin/sleep", self.image, "infinity"),
        )
        assert code == 0, said
        if self.groups:
            writable = "for one in pids memory cpu; do mount -o remount,rw,bind /sys/fs/cgroup/$one; done"
            code, said = await docker("exec", name, "sh", "-c", writable)
            assert code == 0, said
        self.sandboxes[name] = {
            "templateID": TEMPLATE,
            "sandboxID": name,
            "clientID": "c",
            "envdVersion": "0.6.3",
            "metadata": metadata,
            "internet": internet,
        }
        return self.sandboxes[name]

    # The API

    @web.middleware
    async def _refusing(self, request, handler):
        if (refusal := await self.refusals.of(request, handler)) is not None:
            return _failed(*refusal)
        if "/sandboxes" in request.path and request.headers.get("X-API-Key") != KEY:
            return _failed(401, "invalid API key")
        return await handler(request)

    def _shown(self, name: str) -> dict:
        one = self.sandboxes[name]
        return one | {"state": "running", "startedAt": "2026-01-01T00:00:00Z", "endAt": "2026-01-01T01:00:00Z"}

    async def _create(self, request):
        body = await request.json()
        if body["templateID"] != TEMPLATE:
            return _failed(404, f"template '{body['templateID']}' not found")
        made = await self.make(body.get("metadata") or {}, body.get("allow_internet_access"))
        return web.json_response(made | ({"envdAccessToken": "secret"} if self.token else {}), status=201)

    async def _list(self, request):
        wanted = parse_qsl(request.query.get("metadata", ""))
        found = [name for name, one in self.sandboxes.items() if all(one["metadata"].get(k) == v for k, v in wanted)]
        shown = [{**self._shown(name), "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 512} for name in found]
        return web.json_response(shown)

    async def _get(self, request):
        name = request.match_info["id"]
        return web.json_response(self._shown(name)) if name in self.sandboxes else _failed(404, "sandbox not found")

    async def _kill(self, request):
        if request.match_info["id"] not in self.sandboxes:
            return _failed(404, "sandbox not found")
        await self.remove(request.match_info["id"])
        return web.Response(status=204)

    async def _prolong(self, request):
        if request.match_info["id"] not in self.sandboxes:
            return _failed(404, "sandbox not found")
        self.prolonged.append(request.match_info["id"])
        return web.Response(status=204)

    # envd

    def _inside(self, request) -> str:
        name = request.headers["E2b-Sandbox-Id"]
        if name not in self.sandboxes:
            text = json.dumps({"message": "The sandbox was not found", "code": 502})
            raise web.HTTPBadGateway(text=text, content_type="application/json")
        if self.token and request.headers.get("X-Access-Token") != "secret":
            raise web.HTTPUnauthorized
        return name

    async def _health(self, request):
        self._inside(request)
        return web.Response(status=204)

    async def _write(self, request):
        name, path = self._inside(request), request.query["path"]
        if request.content_type == "application/octet-stream":
            data = await request.read()
        else:
            data = await (await (await request.multipart()).next()).read()
        command = 'mkdir -p "$(dirname "$1")" && cat >"$1"'
        code, said = await docker("exec", "-i", name, "sh", "-c", command, "sh", path, stdin=data)
        if code:
            return _failed(500, said)
        return web.json_response([{"name": path.rpartition("/")[2], "path": path, "type": "file"}])

    async def _read(self, request):
        _, said = await docker("exec", self._inside(request), "cat", request.query["path"])
        return web.Response(text=said)

    async def _start(self, request):
        name = self._inside(request)
        raw = await request.read()
        body = json.loads(raw[5:])
        asked, pipe = body["process"], asyncio.subprocess.PIPE
        env = [word for key, value in (asked.get("envs") or {}).items() for word in ("-e", f"{key}={value}")]
        process = await asyncio.create_subprocess_exec(
            *("docker", "exec", *(["-i"] if body.get("stdin") else []), *env, name, asked["cmd"]),
            *asked.get("args", ()),
            **{"stdin": pipe, "stdout": pipe, "stderr": pipe},
        )
        pid = next(self._numbers)
        self._inputs[pid] = process
        answer = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await answer.prepare(request)
        self.streams.append(request)
        lock = asyncio.Lock()

        async def tell(event: dict, flags: int = 0) -> None:
            said = json.dumps(event if flags else {"event": event}).encode()
            async with lock:
                await answer.write(struct.pack(">BI", flags, len(said)) + said)

        async def forward_to(stream, kind: str) -> None:
            while data := await stream.read(1 << 16):
                try:
                    await tell({"data": {kind: base64.b64encode(data).decode()}})
                except ConnectionError:  # it runs on, and nobody listens
                    continue

        async def keep_alive() -> None:
            while not following.done():
                await asyncio.sleep(20)
                with suppress(ConnectionError):
                    await tell({"keepalive": {}})

        async def follow() -> None:
            await asyncio.gather(forward_to(process.stdout, "stdout"), forward_to(process.stderr, "stderr"))
            code = await process.wait()
            self._inputs.pop(pid, None)
            if code:
                await tell({"end": {"exitCode": code, "exited": True, "status": f"exit status {code}"}})
            else:
                await tell({"end": {"exited": True, "status": "exit status 0"}})
            await tell({}, flags=2)

        await tell({"start": {"pid": pid}})
        following = asyncio.create_task(follow())
        self._tasks |= {following, asyncio.create_task(keep_alive())}
        try:
            await asyncio.shield(following)
        except ConnectionError:
            pass
        finally:
            self.streams.remove(request)
        return answer

    async def _send_input(self, request):
        self._inside(request)
        body = await request.json()
        process = self._inputs.get(int(body["process"]["pid"]))
        if process is None:
            return web.json_response({"code": "not_found", "message": "process not found"}, status=404)
        process.stdin.write(base64.b64decode(body["input"]["stdin"]))
        try:
            await process.stdin.drain()
        except ConnectionError:
            return web.json_response({"code": "internal", "message": "broken pipe"}, status=500)
        return web.json_response({})

    async def _close_stdin(self, request):
        self._inside(request)
        self._inputs[int((await request.json())["process"]["pid"])].stdin.close()
        return web.json_response({})


def _failed(status: int, message: str):
    return web.json_response({"code": status, "message": message}, status=status)
