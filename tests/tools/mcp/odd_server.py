"""An MCP server of the standard library alone, which misbehaves as it is told: `odd_server.py MANNER [PORT]`.

With a port it speaks streamable HTTP there."""

import http.server
import json
import os
import signal
import sys
import time
from pathlib import Path

MANNER = sys.argv[1]
ADD = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
DEEP = {"type": "object", "properties": {}}
for _ in range(30):
    DEEP = {"type": "object", "properties": {"a": DEEP}}
SCHEMAS = {
    "no_object": {"type": "array"},
    "bad_properties": {"type": "object", "properties": [1, 2]},
    "bad_property": {"type": "object", "properties": {"a": 5}},
    "bad_required": {"type": "object", "required": "a"},
    "deep": DEEP,
}
calls = []


def tools():
    if MANNER == "no_tools":
        return []
    if MANNER == "many_tools":
        return [{"name": f"t{i}", "inputSchema": ADD} for i in range(1000)]
    if MANNER == "bad_name":
        return [{"name": "add; rm -rf /", "inputSchema": ADD}]
    if MANNER == "twice":
        return [{"name": "add", "inputSchema": ADD}] * 2
    if MANNER == "long":
        return [{"name": "add", "description": "x" * 1_000_000, "inputSchema": ADD}]
    name = "sum" if Path("renamed").exists() else "add"
    return [{"name": name, "description": "Add two numbers.", "inputSchema": SCHEMAS.get(MANNER, ADD)}]


def call(arguments):
    """Return the result of a call, or misbehave."""
    calls.append(arguments)
    match MANNER:
        case "hangs":
            time.sleep(3600)
        case "hangs_once" if not Path("hung").exists():
            Path("hung").touch()
            time.sleep(3600)
        case "renames":
            Path("renamed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            print("out of ideas", file=sys.stderr)
            sys.exit(3)
        case "killed" if not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        case "floods":
            while True:
                write({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}})
    text = f"{arguments['a'] + arguments['b']} ({len(calls)})"
    texts = {"huge": "x" * 100_000_000 if MANNER == "huge" else "", "large": "x" * 1_000_000}
    texts |= {"control": "a\x1b[31mb\x00c", "is_error": "no such number"}
    content = [{"type": "text", "text": texts.get(MANNER, text)}]
    if MANNER == "picture":
        content = [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    if MANNER == "structured":
        return {"content": [], "structuredContent": {"sum": 5}}
    return {"content": "five" if MANNER == "wrong_result" else content, "isError": MANNER == "is_error"}


def answer(message):
    method, number = message.get("method"), message.get("id")
    if number is None:
        return None
    if MANNER == "silent" or (MANNER == "silent_list" and method == "tools/list"):
        time.sleep(3600)
    if MANNER == "refuses":
        return {"jsonrpc": "2.0", "id": number, "error": {"code": -32000, "message": "no licence"}}
    if method == "initialize":
        version = "1999-01-01" if MANNER == "old" else message["params"]["protocolVersion"]
        info = {"name": "odd", "version": "1"}
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": tools()}
        if MANNER == "endless_list":
            result["nextCursor"] = "more"
    elif message["params"]["arguments"].get("a") == "one":
        return {"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": "a is no integer"}}
    else:
        result = call(message["params"]["arguments"])
    return {"jsonrpc": "2.0", "id": number, "result": result}


def write(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        reply = answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        status = 500 if MANNER == "status" and reply and "content" in reply["result"] else 200
        body = b"" if reply is None else json.dumps(reply).encode()
        self.send_response(202 if reply is None else status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_error(405)

    def log_message(self, *_):
        pass


if MANNER == "dies_at_once":
    sys.exit("no such database")
if MANNER == "garbage":
    while True:
        print("I am no server", flush=True)
        time.sleep(0.001)
if len(sys.argv) > 2:
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
if MANNER == "noise":
    print("Welcome to the server!", flush=True)
for line in sys.stdin:
    if (reply := answer(json.loads(line))) is not None:
        write(reply)
