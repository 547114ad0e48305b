"""An inference engine over HTTP whose replies are written down: vLLM's protocol, no model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from atropos_agent.tokens.template import ChatTemplate


class ScriptedEngine:
    """Serves `policy(prompt_text) -> reply` on a free port of loopback, or at `host` and `port`. Use it as `with`.

    faults: statuses to answer with before the next real answer, in order.
    served: the names of its models.
    window: of prompt and reply together, in tokens.
    metrics: the page of its metrics; None where it has none.
    edit: changes a choice before it is sent; it is given the number of the request and the choice.
    """

    def __init__(
        self,
        policy: Callable[[str], str],
        tokenizer,
        *,
        root: str = "scripted",
        delay_s: float = 0.0,
        host: str = "127.0.0.1",
        port: int = 0,
    ):
        self.policy = policy
        self.template = ChatTemplate(tokenizer)
        self.root = root
        self.delay_s = delay_s
        self.faults: list[int] = []
        self.requests = 0
        self.served = ["scripted"]
        self.window = 32768
        self.metrics: str | bytes | None = None
        self.edit: Callable[[int, dict], None] = lambda _number, _choice: None
        app = Starlette(
            routes=[
                Route("/health", lambda _: JSONResponse({})),
                Route("/metrics", self._metrics),
                Route("/v1/models", self._models),
                Route("/v1/completions", self._completions, methods=["POST"]),
            ]
        )
        self._host = host
        config = uvicorn.Config(
            app, host=host, port=port, log_level="error", lifespan="off", ws="none", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> ScriptedEngine:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            threading.Event().wait(0.01)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://{self._host}:{port}/v1"
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join(timeout=120)
        assert not self._thread.is_alive()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._server.server_state.connections)

    async def _metrics(self, _: Request) -> Response:
        return Response(self.metrics or "", 404 if self.metrics is None else 200)

    async def _models(self, _: Request) -> JSONResponse:
        data = [{"id": name, "root": self.root, "max_model_len": self.window} for name in self.served]
        return JSONResponse({"data": data})

    async def _completions(self, request: Request) -> JSONResponse:
        body = await request.json()
        if isinstance(body["prompt"], str):
            prompt = self.template.tokenizer.encode(body["prompt"], add_special_tokens=False)
        else:
            prompt = body["prompt"]
        self.requests += 1
        number = self.requests  # others may come before the answer
        if self.faults:
            return JSONResponse({"error": {"message": "planned"}}, self.faults.pop(0))
        if len(prompt) + body["max_tokens"] > self.window:
            message = f"This model's maximum context length is {self.window} tokens. However, you requested more."
            return JSONResponse({"error": {"message": message, "code": 400}}, 400)
        if isinstance(body["prompt"], str):
            # A question about the tokenizer, not about a task.
            reply = "."
        else:
            await asyncio.sleep(self.delay_s)
            reply = self.policy(self.template.decode(prompt))
        ids = [*self.template.encode(reply, continues=True), self.template.close_id][: body["max_tokens"]]
        choice = {
            "index": 0,
            "text": reply,
            "token_ids": ids,
            "prompt_token_ids": prompt,
            "logprobs": {"token_logprobs": [-0.25] * len(ids)},
            "finish_reason": "stop" if ids[-1] == self.template.close_id else "length",
        }
        self.edit(number, choice)
        return JSONResponse({"choices": [choice]})
