"""mini-swe-agent (MIT, PyPI): one bash tool, Chat Completions, not streamed; arguments come back verbatim."""

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe

_RUN = f"import sys; sys.path.insert(0, {PACK + '/python'!r}); from minisweagent.run.mini import app; app()"


def start(at: Place) -> Start:
    """Run `mini` on the image's Python, isolated from the task's own modules."""
    limits = (f"agent.step_limit={at.turns}", "environment.timeout=120")
    settings = [part for one in ("mini.yaml", *limits) for part in ("-c", one)]
    options = ["-m", "openai/ours", "-y", "--exit-immediately", "-l", "0", "-o", f"{HOME}/trajectory.json"]
    env = {
        "OPENAI_API_BASE": at.v1,
        "OPENAI_API_KEY": KEY,
        "MSWEA_CONFIGURED": "true",
        "MSWEA_COST_TRACKING": "ignore_errors",
        "MSWEA_GLOBAL_CONFIG_DIR": HOME,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    return Start(["python3", "-I", "-c", _RUN, *settings, *options, "-t", at.task], env)


AGENT = ForeignAgent(
    name="mini-swe-agent",
    licence="MIT",
    recipe=Recipe(pypi=("mini-swe-agent==2.4.6", "litellm[mcp]==1.106.2")),
    start=start,
    protocol="chat",
    opening=890,
    budget="turns, as its step_limit",
    beside="nothing",
    shell=("bash", "command", {}),
    failures={1: "an exception, told at the end of its output"},
    submits="COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
)
