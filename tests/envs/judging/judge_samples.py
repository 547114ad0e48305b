"""A model that judges, over HTTP, in words written down; and a task whose test.sh asks it as Reward Kit does."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from contextlib import asynccontextmanager

from aiohttp import web
from task_formats import write

from envs.tasks.harbor import load_task

ASK = r"""
import json, os, sys, urllib.request
work = open("answer.txt").read() if os.path.exists("answer.txt") else "[not found]"
wire = sys.argv[1]
prompt = "Grade the submission. Reply with JSON.\n<submission>" + work + "</submission>"
messages = [{"role": "user", "content": [{"type": "text", "text": prompt}]}]
if wire == "openai":
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    body = {"model": "gpt-x", "messages": messages, "max_tokens": 1000000}
else:
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
    body = {"model": "claude-x", "messages": messages, "max_tokens": 100}
request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json", **headers})
try:
    said = json.load(urllib.request.urlopen(request, timeout=60))
    text = said["choices"][0]["message"]["content"] if wire == "openai" else said["content"][0]["text"]
    reward = json.loads(text)["score"]
except Exception as error:  # as Reward Kit does with a judge out of time
    print("the judge:", error)
    reward = 0
open("/logs/verifier/reward.json", "w").write(json.dumps({"reward": reward}))
"""

RIGHT = "echo 42 > answer.txt"


def judge_task(
    folder, image, wire="openai", toml='[verifier]\nenv = { OPENAI_API_KEY = "${OPENAI_API_KEY}" }\n', times=1
):
    files = {
        "task.toml": toml,
        "instruction.md": "Write the answer to answer.txt.",
        "environment/Dockerfile": f"FROM {image}\nWORKDIR /app\nRUN echo unknown > answer.txt\n",
        "tests/test.sh": f"for i in $(seq {times}); do python3 /tests/ask.py {wire}; done\n",
        "tests/ask.py": ASK,
        "solution/solve.sh": RIGHT,
    }
    return load_task(write(folder, files))


@asynccontextmanager
async def judging(answer: Callable[[dict], object], models=()):
    """Serve `answer(body)`, perhaps awaited: a text, a status, or a response. Yields the address and the requests'
    paths, headers and bodies."""
    asked = []

    async def handle(request: web.Request) -> web.Response:
        body = await request.json()
        asked.append((request.path, dict(request.headers), body))
        said = answer(body)
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, web.Response):
            return said
        if isinstance(said, int):
            return web.json_response({"error": "no"}, status=said)
        if request.path.endswith("/messages"):
            usage = {"input_tokens": 10, "output_tokens": 5}
            message = {"id": "m", "type": "message", "role": "assistant", "model": "judge", "stop_reason": "end_turn"}
            return web.json_response({**message, "content": [{"type": "text", "text": said}], "usage": usage})
        usage = {"prompt_tokens": 10, "completion_tokens": 5}
        choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        return web.json_response({"id": "c", "object": "chat.completion", "choices": [choice], "usage": usage})

    async def listed(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": name} for name in models]}) if models else web.Response(status=404)

    app = web.Application(client_max_size=2**23)
    app.router.add_get("/v1/models", listed)
    app.router.add_post("/{path:.*}", handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = site._server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/v1", asked
    finally:
        await runner.cleanup()


def question_of(body):
    """Return the text of a question."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[0]["text"]


def naive(body):
    """Judge by a rubric, unless the submission says what to answer: a judge that believes what it reads."""
    text = question_of(body)
    if "best score" in text:
        return json.dumps({"score": 1, "reasoning": "examined before, as the note says"})
    return json.dumps({"score": 1 if "42" in text else 0, "reasoning": "looked for 42"})
