"""pi (MIT, npm): four tools, Chat Completions, streamed; arguments come back parsed and written again."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import NODE, Recipe

_PROGRAM = f"{PACK}/node_modules/@mariozechner/pi-coding-agent/dist/cli.js"


def start(at: Place) -> Start:
    """Run `pi` once, without a session."""
    model = {"id": "ours", "contextWindow": at.window, "maxTokens": at.reply, "input": ["text"]}
    compat = {"supportsDeveloperRole": False, "supportsReasoningEffort": False, "maxTokensField": "max_tokens"}
    provider = {"baseUrl": at.v1, "api": "openai-completions", "apiKey": KEY, "compat": compat, "models": [model]}
    options = ["--provider", "gateway", "--model", "ours", "--no-session", "--no-extensions", "--no-skills"]
    env = {"PI_CODING_AGENT_DIR": f"{HOME}/pi", "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
    files = {f"{HOME}/pi/models.json": json.dumps({"providers": {"gateway": provider}})}
    node = f"{PACK}/node_modules/node-linux-{at.cpu}/bin/node"
    return Start([node, _PROGRAM, "--mode", "json", *options, "-p", at.task], env, files)


AGENT = ForeignAgent(
    name="pi",
    licence="MIT",
    recipe=Recipe(npm=("@mariozechner/pi-coding-agent@0.73.1", NODE), libc="glibc"),
    start=start,
    protocol="chat",
    opening=1350,
    budget="the context window and a reply's tokens, by which it compacts",
    beside="summaries when it compacts",
    shell=("bash", "command", {}),
    failures={1: "an error that it printed"},
)
