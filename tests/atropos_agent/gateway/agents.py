"""Agents of other people, an inference server whose logprobs name each token, and what must hold of every rollout."""

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager

from native import TOOLS, Model

from atropos_agent.engines.scripted import ScriptedTurn
from atropos_agent.fitted import FittedFormat
from atropos_agent.gateway import Session
from atropos_agent.gateway.app import UNTAKEN, protocol_of
from atropos_agent.gateway.encoding import opening
from atropos_agent.gateway.gemini import of_path
from atropos_agent.tokens.conversation import Conversation
from atropos_agent.tokens.record import problems
from atropos_agent.types import IGNORED, AgentConfig

SCHEMAS = TOOLS.schemas
QUERY = b"alt=sse"


class NamingEngine(Model):
    """Samples what is written down, in order. Each logprob is another one, so that it names its token.

    gate: replies wait for it. limits: how many tokens each request allowed. failing: raised by the next request."""

    def __init__(self, fitted: FittedFormat, replies=()):
        super().__init__(fitted, list(replies), "stop")
        self.gate = asyncio.Event()
        self.gate.set()
        self.options = []
        self.failing = None
        self.max_model_len = None
        self._named = 0

    async def tokens_and_logprobs_completion(self, **kwargs):
        if self.failing is not None:
            raise self.failing
        prompt, scripted = list(kwargs["input_ids"]), self.scenario.pop(0)
        self.options.append(kwargs)
        await self.gate.wait()
        opened = self.fitted.template.decode(prompt[-8:]).rstrip().endswith(self.fitted.format.thinking[0])
        turn = self.turn(scripted, opened)
        ids, reason = turn.ids[: kwargs["max_tokens"]], turn.reason
        reason = "length" if len(ids) < len(turn.ids) else reason
        logprobs = [-(self._named + n + 1) / 2**20 for n in range(len(ids))]
        self._named += len(ids)
        self.exchanges.append(ScriptedTurn(prompt, ids, logprobs))
        return prompt, [ids], [logprobs], [reason]


class Told(Exception):
    """An answer that is an error."""

    def __init__(self, status, body):
        super().__init__(f"{status}: {body}")
        self.status, self.body = status, body


class Client:
    """Speaks HTTP with a session, without a network. cut: bytes of the body after which it goes away.

    control: rows that "render the history again and join by prefix" makes of the same traffic, where it `compares`."""

    compares = False

    def __init__(self, session, fitted, engine):
        self.session, self.fitted, self.engine = session, fitted, engine
        self.control = []

    async def call(self, path, body, *, method="POST", cut=None, gone=None, content=None, raises=True, seen=None):
        """Return status, headers and body. gone: an event at which the client goes away. seen: told what has come."""
        gone = gone or asyncio.Event()
        sent, known = [json.dumps(body).encode() if content is None else content], len(self.engine.exchanges)
        started, received = {}, bytearray()

        async def receive():
            if sent:
                return {"type": "http.request", "body": sent.pop(), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            if gone.is_set():
                raise OSError("gone")
            if message["type"] == "http.response.start":
                started.update(message)
            received.extend(message.get("body", b""))
            if seen is not None:
                seen(bytes(received))
            if cut is not None and (len(received) > cut or cut == 0):
                gone.set()
                raise OSError("gone")

        scope = {"type": "http", "method": method, "path": path, "query_string": QUERY, "headers": [], "extensions": {}}
        await self.session.handle(scope, receive, send)
        self.untaken = scope["extensions"].get(UNTAKEN)
        if gone.is_set() or not started:
            return None
        if started["status"] != 200 and raises:
            raise Told(started["status"], json.loads(bytes(received)))
        if self.compares and len(self.engine.exchanges) > known:
            self.compare(path, body)
        return started["status"], dict(started["headers"]), bytes(received)

    def compare(self, path, body):
        """Take in what the last request and its reply would be for what renders the history again."""
        path = path.removeprefix("/v1beta/").removeprefix("/v1/")
        prompt = rendered_again(self.fitted, protocol_of(path).read(of_path(path, QUERY, body)))
        merge_by_prefix(self.control, prompt, self.engine.exchanges[-1].ids)


def rendered_again(fitted, request):
    """A request's prompt, rendered from what the agent tells."""
    fitted = fitted.with_tools(request.tools)
    messages = opening(request.messages, fitted, request.tools, lambda _: None)
    return Conversation(
        fitted.template,
        messages,
        fitted.format.frame,
        fitted.format.literals,
        fitted.shown(request.tools),
        fitted.shape,
    ).prompt


def merge_by_prefix(rows, prompt, ids):
    """Add a prompt and its reply to the row that the prompt begins with, or as a new one."""
    place = next((n for n, row in enumerate(rows) if prompt[: len(row)] == row), len(rows))
    rows[place : place + 1] = [[*prompt, *ids]]


@asynccontextmanager
async def opened(fitted, replies=(), *, trained=None, tolerates=(), **config):
    """A session over an engine that says these replies. Yields a client, the engine."""
    engine = NamingEngine(fitted, replies)
    config = AgentConfig(**{"max_tokens": 100_000, "max_steps": 200, **config})
    more = {} if trained is None else {"trained": trained}
    async with Session(engine, fitted.template, fitted, config, tolerates=tolerates, **more) as session:
        yield Client(session, fitted, engine), engine


class ChatAgent:
    """Uses Chat Completions."""

    path = "/v1/chat/completions"

    def __init__(self, client, *, system="You are an agent.", tools=SCHEMAS, stream=False, **body):
        self.client, self.stream = client, stream
        self.tools = list(tools)
        self.body = {"model": "m", **body}
        self.history = []
        if system:
            self.system(system)

    def system(self, text):
        self.history.append({"role": "system", "content": text})

    def user(self, text):
        self.history.append(self.message(text))

    def message(self, text):
        return {"role": "user", "content": text}

    def request(self):
        body = {**self.body, "messages": self.history, "stream": self.stream}
        return body | ({"tools": self.tools} if self.tools else {})

    async def ask(self, keep=True, **how):
        """Return the reply in the protocol's own words, which is kept in the history; None for a client that went."""
        answered = await self.client.call(self.path, self.request(), **how)
        if answered is None:
            return None
        reply = self.read(answered[2])
        if keep:
            self.keep(reply)
        return reply

    def read(self, content):
        if not self.stream:
            return json.loads(content)["choices"][0]["message"]
        message = {"role": "assistant", "content": ""}
        for chunk in events(content):
            for choice in chunk["choices"]:
                delta = choice["delta"]
                message["content"] += delta.get("content") or ""
                message |= {key: delta[key] for key in ("reasoning_content",) if key in delta}
                for call in delta.get("tool_calls", ()):
                    message.setdefault("tool_calls", []).append({k: v for k, v in call.items() if k != "index"})
        return message

    def keep(self, reply):
        self.history.append(reply)

    def calls(self, reply):
        return [call["id"] for call in reply.get("tool_calls", ())]

    def results(self, reply, *texts):
        """Tell the results of a reply's calls; ask to go on where there are none."""
        ids = self.calls(reply)
        if not ids:
            self.user("Go on.")
            return
        for number, text in zip(ids, texts or ["done"] * len(ids), strict=True):
            self.history.append(self.result(number, text))

    def result(self, number, text):
        return {"role": "tool", "tool_call_id": number, "content": text}


class ResponsesAgent(ChatAgent):
    """Uses Responses."""

    path = "/v1/responses"

    def request(self):
        tools = [{"type": "function", **tool["function"]} for tool in self.tools]
        return {**self.body, "input": self.history, "stream": self.stream, "tools": tools}

    def read(self, content):
        response = events(content)[-1]["response"] if self.stream else json.loads(content)
        self.last = response
        return response["output"]

    def keep(self, reply):
        self.history += reply

    def calls(self, reply):
        return [item["call_id"] for item in reply if item["type"] == "function_call"]

    def result(self, number, text):
        return {"type": "function_call_output", "call_id": number, "output": text}


class MessagesAgent(ChatAgent):
    """Uses Messages."""

    path = "/v1/messages"

    def system(self, text):
        if not self.history:
            self.body["system"] = [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]
        else:
            super().system(text)

    def request(self):
        tools = [
            {
                "name": tool["function"]["name"],
                "description": tool["function"]["description"],
                "input_schema": tool["function"]["parameters"],
            }
            for tool in self.tools
        ]
        return {"max_tokens": 32_000, **self.body, "messages": self.history, "stream": self.stream, "tools": tools}

    def read(self, content):
        if not self.stream:
            return {"role": "assistant", "content": json.loads(content)["content"]}
        blocks = []
        for one in events(content):
            match one["type"]:
                case "content_block_start":
                    blocks.append(dict(one["content_block"]))
                case "content_block_delta":
                    for key, value in one["delta"].items():
                        if key == "partial_json":
                            blocks[-1]["input"] = read_input(value)
                        elif key != "type":
                            blocks[-1][key] = blocks[-1].get(key, "") + value
        return {"role": "assistant", "content": blocks}

    def calls(self, reply):
        return [block["id"] for block in reply["content"] if block["type"] == "tool_use"]

    def results(self, reply, *texts):
        ids = self.calls(reply)
        if not ids:
            self.user("Go on.")
            return
        blocks = [
            {"type": "tool_result", "tool_use_id": number, "content": [{"type": "text", "text": text}]}
            for number, text in zip(ids, texts or ["done"] * len(ids), strict=True)
        ]
        self.history.append({"role": "user", "content": blocks})


class GeminiAgent(ChatAgent):
    """Uses generateContent."""

    @property
    def path(self):
        return f"/v1beta/models/m:{'streamGenerateContent' if self.stream else 'generateContent'}"

    def system(self, text):
        if not self.history:
            self.body["systemInstruction"] = {"parts": [{"text": text}]}
        else:
            self.user(text)

    def message(self, text):
        return {"role": "user", "parts": text if isinstance(text, list) else [{"text": text}]}

    def request(self):
        tools = [{"functionDeclarations": [tool["function"] for tool in self.tools]}] if self.tools else []
        body = {key: value for key, value in self.body.items() if key != "model"}
        body.setdefault("generationConfig", {"thinkingConfig": {"includeThoughts": True}})
        return {**body, "contents": self.history, "tools": tools}

    def read(self, content):
        chunks = events(content) if self.stream else [json.loads(content)]
        parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]]
        return {"role": "model", "parts": parts}

    def calls(self, reply):
        return [part["functionCall"]["id"] for part in reply["parts"] if "functionCall" in part]

    def results(self, reply, *texts):
        ids = self.calls(reply)
        if not ids:
            self.user("Go on.")
            return
        names = [part["functionCall"]["name"] for part in reply["parts"] if "functionCall" in part]
        told = zip(zip(ids, names, strict=True), texts or ["done"] * len(ids), strict=True)
        parts = [{"functionResponse": {"id": n, "name": name, "response": {"output": t}}} for (n, name), t in told]
        self.history.append({"role": "user", "parts": parts})


AGENTS = {"chat": ChatAgent, "responses": ResponsesAgent, "messages": MessagesAgent, "gemini": GeminiAgent}


def read_input(text):
    """A call's arguments as Claude Code takes them: broken ones in a field of its own."""
    try:
        return json.loads(text)
    except ValueError:
        return {"__unparsed": text}


def events(content):
    """The data of server-sent events."""
    lines = [line.removeprefix("data: ") for line in content.decode().splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line not in ("[DONE]", '{"type": "ping"}')]


def assert_every_token_is_accounted_for(result, engine):
    """Each sampled token is trained in exactly one row, after what the engine was given, or counted by reason."""
    named = {
        logprob: (exchange, place) for exchange in engine.exchanges for place, logprob in enumerate(exchange.logprobs)
    }
    trained = Counter()
    for row in result.segments:
        for place, (token, mask, logprob) in enumerate(zip(row.tokens, row.masked_tokens, row.logprobs, strict=True)):
            if mask == IGNORED:
                continue
            exchange, of = named[logprob]
            trained[logprob] += 1
            assert token == exchange.ids[of]
            assert place == len(exchange.prompt) + of
            if of == 0:
                assert list(row.tokens[:place]) == list(exchange.prompt)
    assert set(trained.values()) <= {1}
    untrained = sum(result.metadata["gateway"]["untrained_tokens"].values())
    assert len(trained) + untrained == len(named)
    assert problems(result.segments, result.record) == [None] * len(result.segments)
