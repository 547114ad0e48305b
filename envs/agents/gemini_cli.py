"""Gemini CLI (Apache-2.0, npm): Google's generateContent, streamed; thinking is not sent back."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import NODE, Recipe
from envs.agents.servers import mcp_entries

_PROGRAM = f"{PACK}/node_modules/@google/gemini-cli/bundle/gemini.js"


def start(at: Place) -> Start:
    """Run `gemini -p`. The name of a model keeps it from asking which model to use."""
    settings = {
        "model": {"maxSessionTurns": at.turns, "skipNextSpeakerCheck": True},
        **{"privacy": {"usageStatisticsEnabled": False}, "security": {"auth": {"selectedType": "gemini-api-key"}}},
        "mcpServers": mcp_entries(at.servers, "httpUrl"),
    }
    env = {
        **{"GEMINI_CLI_HOME": HOME, "GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": at.url},
        **{"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_CLI_NO_RELAUNCH": "true"},
    }
    options = ["--yolo", "--model", "gemini-2.5-pro", "--output-format", "json", "-p", at.task]
    node = f"{PACK}/node_modules/node-linux-{at.cpu}/bin/node"
    return Start([node, _PROGRAM, *options], env, {f"{HOME}/.gemini/settings.json": json.dumps(settings)})


AGENT = ForeignAgent(
    name="gemini-cli",
    licence="Apache-2.0",
    recipe=Recipe(npm=("@google/gemini-cli@0.61.0", NODE), libc="glibc"),
    start=start,
    protocol="gemini",
    opening=11200,
    budget="turns",
    beside="summaries when it compacts",
    shell=("run_shell_command", "command", {}),
    failures={53: "its turns were over"},
    mcp=("stdio", "sse", "streamable-http"),
)
