"""A small agent of one tool, for `--env.agent PATH`: Chat Completions by the standard library alone."""

from envs.agents.facts import HOME, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe

SCRIPT = """
import json, os, subprocess, sys, time, urllib.request
def ask():
    body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
    kind = {"content-type": "application/json"}
    request = urllib.request.Request(os.environ["URL"] + "/chat/completions", body, kind)
    return json.loads(urllib.request.urlopen(request, timeout=60).read())["choices"][0]["message"]
schema = {"type": "object", "properties": {"command": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "bash", "description": "run", "parameters": schema}}]
messages = [{"role": "user", "content": sys.argv[1]}]
print("began", flush=True)
while True:
    message = ask()
    messages.append(message)
    if not message.get("tool_calls"):
        break
    for call in message["tool_calls"]:
        done = subprocess.run(json.loads(call["function"]["arguments"])["command"], shell=True, capture_output=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout.decode()})
"""


def start(at: Place, script: str = SCRIPT) -> Start:
    """Run it on the image's Python."""
    return Start(["python3", f"{HOME}/agent.py", at.task], {"URL": at.v1}, {f"{HOME}/agent.py": script})


AGENT = ForeignAgent(
    name="small",
    licence="MIT",
    recipe=Recipe(),
    start=start,
    protocol="chat",
    opening=100,
    budget="not",
    beside="nothing",
    shell=("bash", "command", {}),
)
