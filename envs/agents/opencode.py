"""OpenCode (MIT, npm): Chat Completions, streamed; malformed calls come back as calls of a tool named `invalid`."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe
from envs.agents.servers import opencode_entries


def start(at: Place) -> Start:
    """Run `opencode run`. Its own files lie apart from the user's."""
    model = {"name": "ours", "limit": {"context": at.window, "output": at.reply}, "tool_call": True}
    provider = {
        **{"npm": "@ai-sdk/openai-compatible", "name": "gateway"},
        "options": {"baseURL": at.v1, "apiKey": KEY},
        "models": {"ours": model},
    }
    config = {"provider": {"gateway": provider}, "autoupdate": False, "share": "disabled", "permission": "allow"}
    config["mcp"] = opencode_entries(at.servers)
    env = {f"XDG_{kind}_HOME": f"{HOME}/{kind.lower()}" for kind in ("CONFIG", "DATA", "CACHE", "STATE")}
    env |= {"OPENCODE_CONFIG": f"{HOME}/opencode.json", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    env |= {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_PURE": "1", "OPENCODE_PRINT_LOGS": "1"}
    program = f"{PACK}/node_modules/opencode-linux-{at.cpu}/bin/opencode"
    argv = [program, "run", "--model", "gateway/ours", "--format", "json", at.task]
    return Start(argv, env, {f"{HOME}/opencode.json": json.dumps(config)})


AGENT = ForeignAgent(
    name="opencode",
    licence="MIT",
    recipe=Recipe(npm=("opencode-linux-{cpu}@1.18.18",), libc="glibc"),
    start=start,
    protocol="chat",
    opening=8000,
    budget="the context window and a reply's tokens, by which it compacts",
    beside="a title at the beginning, summaries when it compacts, sub-agents",
    shell=("bash", "command", {"description": "work"}),
    failures={1: "an error that it printed"},
    mcp=("stdio", "sse", "streamable-http"),
)
