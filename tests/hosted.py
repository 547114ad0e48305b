"""A hosted model that behaves as the providers' documentation says: each of three protocols over HTTP, no model.

It calls the calculator with what is asked, and answers with its result."""

import json
import re
from collections import deque

from werkzeug import Request, Response

QUESTION = re.compile(r"What is (\d+ [+*] \d+)")


class Hosted:
    """One model at three routes.

    refuses: its error's status, body and headers for a request's body; None if it takes it.
    first: answers to the next requests, as (status, body, headers). asked: bodies of accepted requests."""

    def __init__(self, httpserver):
        self.url = httpserver.url_for("/v1")
        self.asked: list[dict] = []
        self.requests = 0
        self.refuses = lambda body: None
        self.first: deque = deque()
        self.arguments = lambda expression: json.dumps({"expression": expression})
        routes = {"chat/completions": self._chat, "responses": self._responses, "messages": self._messages}
        for path, answer in routes.items():
            httpserver.expect_request(f"/v1/{path}").respond_with_handler(self._handler(answer))

    def _handler(self, answer):
        def handle(request: Request) -> Response:
            self.requests += 1
            body = json.loads(request.get_data())
            status, told, headers = self.first.popleft() if self.first else self.refuses(body) or (200, None, {})
            if status == 200:
                self.asked.append(body)
                told = answer(body)
            return Response(json.dumps(told), status, headers, content_type="application/json")

        return handle

    def _chat(self, body):
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        message = {"role": "assistant", "content": None}
        if results or "tools" not in body:
            message["content"] = results[-1] if results else "I can't."
        else:
            called = {"name": "calculator", "arguments": self.arguments(_expression(body["messages"]))}
            message["tool_calls"] = [{"id": "call_abc", "type": "function", "function": called}]
        reason = "tool_calls" if "tool_calls" in message else "stop"
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        usage["prompt_tokens_details"] = {"cached_tokens": 40}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}

    def _responses(self, body):
        results = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
        thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
        if results or "tools" not in body:
            part = {"type": "output_text", "text": results[-1] if results else "I can't.", "annotations": []}
            output = [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}]
        else:
            called = {"name": "calculator", "arguments": self.arguments(_expression(body["input"]))}
            output = [thought, {"type": "function_call", "id": "fc_1", "call_id": "call_abc", **called}]
        usage = {"input_tokens": 100, "output_tokens": 10, "input_tokens_details": {"cached_tokens": 40}}
        return {"id": "r", "object": "response", "status": "completed", "error": None, "output": output, "usage": usage}

    def _messages(self, body):
        blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
        results = [block["content"] for block in blocks if block["type"] == "tool_result"]
        if results or "tools" not in body:
            content, reason = [{"type": "text", "text": results[-1] if results else "I can't."}], "end_turn"
        else:
            arguments = json.loads(self.arguments(_expression(body["messages"])))
            content = [
                {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                {"type": "tool_use", "id": "toolu_abc", "name": "calculator", "input": arguments},
            ]
            reason = "tool_use"
        usage = {"input_tokens": 60, "cache_read_input_tokens": 40, "output_tokens": 10}
        return {"type": "message", "content": content, "stop_reason": reason, "usage": usage}


def _expression(messages):
    found = QUESTION.search(json.dumps(messages))
    return found[1] if found else "1+1"
