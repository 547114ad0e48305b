"""Claude Code (proprietary, npm): Messages, streamed. It is installed only on request by name."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe
from envs.agents.servers import mcp_entries


def start(at: Place) -> Start:
    """Run `claude -p`. A known model name keeps system messages out of the middle of conversations."""
    env = {
        "ANTHROPIC_BASE_URL": at.url,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_MODEL": "claude-sonnet-4-5-20250929",
        "ANTHROPIC_SMALL_FAST_MODEL": "claude-sonnet-4-5-20250929",
        **{"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_ATTRIBUTION_HEADER": "0"},
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(at.reply),
        "CLAUDE_CONFIG_DIR": f"{HOME}/claude",
        **{"IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"},
    }
    options = ["--dangerously-skip-permissions", "--output-format", "json", "--max-turns", str(at.turns)]
    files = {f"{HOME}/mcp.json": json.dumps({"mcpServers": mcp_entries(at.servers)})} if at.servers else {}
    program = f"{PACK}/node_modules/@anthropic-ai/claude-code-linux-{at.cpu}{at.musl}/claude"
    return Start([program, "-p", at.task, *options, *(f"--mcp-config={path}" for path in files)], env, files)


AGENT = ForeignAgent(
    name="claude-code",
    licence="proprietary",
    recipe=Recipe(npm=("@anthropic-ai/claude-code-linux-{cpu}{musl}@2.1.332",)),
    start=start,
    protocol="messages",
    opening=20000,
    budget="turns, and a reply's tokens",
    beside="a title at the beginning, sub-agents",
    shell=("Bash", "command", {"description": "work"}),
    failures={1: "an error, told in its output"},
    mcp=("stdio", "sse", "streamable-http"),
)
