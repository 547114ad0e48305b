"""Terminus 2 (Apache-2.0, PyPI): Harbor's agent at a tmux of the image; Chat Completions, keystrokes as JSON."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe

_RUN = f"""import asyncio, json, pathlib, subprocess, sys, types; sys.path.insert(0, {PACK + "/python"!r})
from harbor.agents.terminus_2 import Terminus2
async def run(command, **_):
    ran = subprocess.run(["bash", "-c", command], capture_output=True, errors="replace")
    return types.SimpleNamespace(return_code=ran.returncode, stdout=ran.stdout, stderr=ran.stderr)
here = types.SimpleNamespace(exec=run, default_user=None, session_id="")
agent = Terminus2(pathlib.Path({HOME!r}), "openai/ours", record_terminal_session=False, **json.loads(sys.argv[2]))
asyncio.run(agent.setup(here)); asyncio.run(agent.run(sys.argv[1], here, types.SimpleNamespace()))
"""
_SAYS = '{"analysis": "", "plan": "", "commands": [%s], "task_complete": %s}'


def start(at: Place) -> Start:
    """Run Harbor's class for it, with the sandbox as its environment."""
    info = {"max_input_tokens": at.window, "max_output_tokens": at.reply}
    given = json.dumps({"api_base": at.v1, "max_turns": at.turns, "model_info": info})
    env = {"HOME": HOME, "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return Start(["python3", "-I", "-c", _RUN, at.task, given], env)


AGENT = ForeignAgent(
    name="terminus-2",
    licence="Apache-2.0",
    recipe=Recipe(pypi=("harbor==0.26.0",), least_python="3.12"),
    start=start,
    protocol="chat",
    opening=750,
    budget="turns, context window, tokens of a reply",
    beside="summaries, in three requests each",
    shell=None,
    edits=lambda path, text: _SAYS % (json.dumps({"keystrokes": f"cat >{path} <<'END'\n{text}\nEND\n"}), "false"),
    done=_SAYS % ("", "true"),
)
