"""goose (Apache-2.0, npm): Chat Completions, streamed; the time stands in a user message, and stays there."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe
from envs.agents.servers import mcp_entries


def start(at: Place) -> Start:
    """Run `goose run`. Its settings are JSON, which is YAML too."""
    env = {
        **{"HOME": HOME, "GOOSE_PROVIDER": "openai", "GOOSE_MODEL": "ours", "GOOSE_MODE": "auto"},
        **{"GOOSE_DISABLE_KEYRING": "1", "GOOSE_TELEMETRY_ENABLED": "false"},
        **{"GOOSE_CONTEXT_LIMIT": str(at.window), "GOOSE_MAX_TOKENS": str(at.reply)},
        **{"OPENAI_HOST": at.url, "OPENAI_API_KEY": KEY},
    }
    fixed = {"enabled": True, "type": "stdio"}
    extensions = {
        name: {**fixed, "name": name, "cmd": one["command"], "args": one["args"], "envs": one["env"]}
        for name, one in mcp_entries(at.servers).items()
    }
    files = {f"{HOME}/.config/goose/config.yaml": json.dumps({"extensions": extensions})}
    program = f"{PACK}/node_modules/@aaif/goose-binary-linux-{at.cpu}/bin/goose"
    return Start([program, "run", "--no-session", "--max-turns", str(at.turns), "--text", at.task], env, files)


AGENT = ForeignAgent(
    name="goose",
    licence="Apache-2.0",
    recipe=Recipe(npm=("@aaif/goose-binary-linux-{cpu}@1.52.0",), libc="glibc"),
    start=start,
    protocol="chat",
    opening=4800,
    budget="turns, context window, tokens of a reply",
    beside="a title at the beginning, summaries when it compacts, sub-agents",
    shell=("shell", "command", {}),
    mcp=["stdio"],
)
