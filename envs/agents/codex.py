"""Codex (Apache-2.0, npm): Responses, streamed, the whole history each time; its echo is verbatim."""

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe
from envs.agents.servers import codex_settings

_FOLDER = f"{PACK}/node_modules/@openai/codex/vendor"
_TARGETS = {"x64": "x86_64-unknown-linux-musl", "arm64": "aarch64-unknown-linux-musl"}


def start(at: Place) -> Start:
    """Run `codex exec`. Our sandbox holds it, so it makes none of its own."""
    config = f"""model = "ours"
model_provider = "gateway"
model_context_window = {at.window}
check_for_update_on_startup = false
web_search = "disabled"
[model_providers]
gateway = {{ name = "gateway", base_url = "{at.v1}", env_key = "GATEWAY_KEY", wire_api = "responses" }}
{codex_settings(at.servers)}"""
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"]
    argv = [f"{_FOLDER}/{_TARGETS[at.cpu]}/bin/codex", "exec", *options, at.task]
    env = {"CODEX_HOME": f"{HOME}/codex", "GATEWAY_KEY": KEY}
    return Start(argv, env, {f"{HOME}/codex/config.toml": config})


AGENT = ForeignAgent(
    name="codex",
    licence="Apache-2.0",
    recipe=Recipe(npm=("@openai/codex@0.171.0-linux-{cpu}",)),
    start=start,
    protocol="responses",
    opening=9000,
    budget="the context window, by which it compacts",
    beside="summaries when it compacts, sub-agents",
    shell=("exec_command", "cmd", {}),
    failures={1: "an error, or a reply that was cut off"},
    mcp=("stdio", "streamable-http"),
)
