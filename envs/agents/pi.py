"""pi (MIT, npm): four tools, Chat Completions, streamed; arguments come back parsed and written again."""

import json
from pathlib import Path

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import NODE, Recipe

_PROGRAM = f"{PACK}/node_modules/@mariozechner/pi-coding-agent/dist/cli.js"
_CLIENT = Path(__file__).with_name("pi_client.mjs")
_RESERVE, _KEEP = 16_384, 20_000
"""Tokens that pi by itself leaves free, and those of the last turns that it does not sum up."""


def start(at: Place) -> Start:
    """Run pi once, without a session."""
    model = {"id": "ours", "contextWindow": at.window, "maxTokens": at.reply, "input": ["text"]}
    compat = {"supportsDeveloperRole": False, "supportsReasoningEffort": False, "maxTokensField": "max_tokens"}
    provider = {"baseUrl": at.v1, "api": "openai-completions", "apiKey": KEY, "compat": compat, "models": [model]}
    # Its own figures would leave nothing of a small window.
    room = {"reserveTokens": min(_RESERVE, at.window // 8), "keepRecentTokens": min(_KEEP, at.window // 8)}
    options = ["--provider", "gateway", "--model", "ours", "--no-session", "--no-extensions", "--no-skills"]
    env = {"PI_CODING_AGENT_DIR": f"{HOME}/pi", "PI_OFFLINE": "1", "PI_TELEMETRY": "0"}
    client = f"{HOME}/pi_client.mjs"
    files = {
        f"{HOME}/pi/models.json": json.dumps({"providers": {"gateway": provider}}),
        f"{HOME}/pi/settings.json": json.dumps({"compaction": room}),
        client: _CLIENT.read_text(),
    }
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
