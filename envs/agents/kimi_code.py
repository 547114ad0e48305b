"""Kimi Code (MIT, npm): Chat Completions, streamed."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import NODE, Recipe
from envs.agents.servers import mcp_entries

_PROGRAM = f"{PACK}/node_modules/@moonshot-ai/kimi-code/dist/main.mjs"


def start(at: Place) -> Start:
    """Run `kimi -p` with a model by variables. It would keep 50,000 tokens of the window free."""
    loop = f"loop_control = {{max_steps_per_turn = {at.turns}, reserved_context_size = {at.reply}}}\n"
    model = {
        **{"NAME": "ours", "PROVIDER_TYPE": "openai", "BASE_URL": at.v1, "API_KEY": KEY},
        **{"MAX_CONTEXT_SIZE": str(at.window), "MAX_OUTPUT_SIZE": str(at.reply)},
    }
    env = {f"KIMI_MODEL_{name}": value for name, value in model.items()}
    env |= {"HOME": HOME, "KIMI_CODE_HOME": f"{HOME}/kimi", "KIMI_CODE_NO_AUTO_UPDATE": "1"}
    servers = json.dumps({"mcpServers": mcp_entries(at.servers, "url")})
    files = {f"{HOME}/kimi/config.toml": f"telemetry = false\n{loop}", f"{HOME}/kimi/mcp.json": servers}
    node = f"{PACK}/node_modules/node-linux-{at.cpu}/bin/node"
    return Start([node, _PROGRAM, "--output-format", "stream-json", "-p", at.task], env, files)


AGENT = ForeignAgent(
    name="kimi-code",
    licence="MIT",
    recipe=Recipe(npm=("@moonshot-ai/kimi-code@2.1.0", NODE), libc="glibc"),
    start=start,
    protocol="chat",
    opening=22400,
    budget="turns, context window, tokens of a reply",
    beside="summaries when it compacts, sub-agents",
    shell=("Bash", "command", {}),
    mcp=("stdio", "streamable-http"),
)
