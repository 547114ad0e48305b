"""Qwen Code (Apache-2.0, npm): Chat Completions, streamed; it runs malformed calls repaired, and ignores NO_PROXY."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import NODE, Recipe
from envs.agents.servers import mcp_entries

_PROGRAM = f"{PACK}/node_modules/@qwen-code/qwen-code/cli.js"


def start(at: Place) -> Start:
    """Run `qwen -p`. It lives on for half a minute after its last reply."""
    env = {
        "OPENAI_BASE_URL": at.v1,
        "OPENAI_API_KEY": KEY,
        "OPENAI_MODEL": "ours",
        "QWEN_HOME": f"{HOME}/qwen",
        "QWEN_TELEMETRY_ENABLED": "false",
    }
    node = f"{PACK}/node_modules/node-linux-{at.cpu}/bin/node"
    options = ["--yolo", "--auth-type", "openai", "--max-session-turns", str(at.turns), "-p", at.task]
    settings = {"mcpServers": mcp_entries(at.servers, "httpUrl")}
    return Start([node, _PROGRAM, *options], env, {f"{HOME}/qwen/settings.json": json.dumps(settings)})


AGENT = ForeignAgent(
    name="qwen-code",
    licence="Apache-2.0",
    recipe=Recipe(npm=("@qwen-code/qwen-code@0.24.4", NODE), libc="glibc"),
    start=start,
    protocol="chat",
    opening=19000,
    budget="turns",
    beside="summaries when it compacts, checks of who speaks next",
    shell=("run_shell_command", "command", {"is_background": False}),
    failures={1: "an error that it printed", 53: "its turns were over"},
    mcp=("stdio", "sse", "streamable-http"),
)
