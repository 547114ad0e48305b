"""Terminus 2 (Apache-2.0, PyPI): Harbor's agent at a pseudo-terminal; Chat Completions, keystrokes as JSON."""

import json
from pathlib import Path

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe

_CLIENT = Path(__file__).with_name("terminus_client.py")
_RUN = f"import runpy, sys; sys.path.insert(0, {PACK + '/python'!r}); runpy.run_path(sys.argv[1], run_name='__main__')"
_SAYS = '{"analysis": "", "plan": "", "commands": [%s], "task_complete": %s}'


def start(at: Place) -> Start:
    """Run Harbor's class in the sandbox, at a terminal there."""
    info = {"max_input_tokens": at.window, "max_output_tokens": at.reply}
    given = json.dumps({"api_base": at.v1, "max_turns": at.turns, "model_info": info})
    env = {"HOME": HOME, "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    client = f"{HOME}/terminus_client.py"
    argv = ["python3", "-I", "-c", _RUN, client, HOME, at.task, given]
    return Start(argv, env, {client: _CLIENT.read_text(encoding="utf-8")})


AGENT = ForeignAgent(
    name="terminus-2",
    licence="Apache-2.0",
    recipe=Recipe(pypi=("harbor==0.26.0", "pyte==0.8.2"), least_python="3.12"),
    start=start,
    protocol="chat",
    opening=750,
    budget="turns, context window, tokens of a reply",
    beside="summaries, in three requests each",
    shell=None,
    edits=lambda path, text: _SAYS % (json.dumps({"keystrokes": f"cat >{path} <<'END'\n{text}\nEND\n"}), "false"),
    done=_SAYS % ("", "true"),
)
