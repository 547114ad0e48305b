"""pi (MIT, npm): four tools, Chat Completions, streamed; arguments come back parsed and written again."""

import json
from pathlib import Path

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import NODE, Recipe

_PROGRAM = f"{PACK}/node_modules/@mariozechner/pi-coding-agent/dist/cli.js"
_CLIENT = Path(__file__).with_name("pi_client.mjs")


def start(at: Place) -> Start:
    """Run pi once, without a session. Its own figures for summaries would leave nothing of a small window."""
    model = {"id": "ours", "contextWindow": at.window, "maxTokens": at.reply, "input": ["text"]}
    compat = {"supportsDeveloperRole": False, "supportsReasoningEffort": False, "maxTokensField": "max_tokens"}
    provider = {"baseUrl": at.v1, "api": "openai-completions", "apiKey": KEY, "compat": compat, "models": [model]}
    room = {"reserveTokens": min(16_384, at.window // 8), "keepRecentTokens": min(20_000, at.window // 8)}
    options = ["--provider", "gateway", "--model", "ours", "--no-session", "--no-extensions", "--no-skills"]
    env = {"PI_CODING_AGENT_DIR": f"{HOME}/pi", "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
    client = f"{HOME}/pi_client.mjs"
    files = {f"{HOME}/pi/models.json": json.dumps({"providers": {"gateway": provider}}), client: _CLIENT.read_text()}
    files[f"{HOME}/pi/settings.json"] = json.dumps({"compaction": room})
    node = f"{PACK}/node_modules/node-linux-{at.cpu}/bin/node"
    return Start([node, client, at.task, node, _PROGRAM, "--mode", "rpc", *options], env, files)


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
