"""OpenHands (MIT, PyPI): its SDK's default agent, Chat Completions, not streamed; thinking is not sent back."""

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe

_SDK, _TOOLS = "openhands-sdk==1.58.2", "openhands-tools==1.58.2"
_NEEDED = ("libtmux==0.62.0", "binaryornot==0.6.0", "cachetools==8.0.1")
_RUN = f"""import os, sys
sys.path[:0] = [{PACK + "/python"!r}, {PACK + "/bare"!r}]
from openhands.sdk import LLM, Conversation
from openhands.tools.preset.default import get_default_agent
task, url, window, reply, turns = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
limits = dict(max_input_tokens=window, max_output_tokens=reply, timeout=7200, native_tool_calling=True)
llm = LLM(model="openai/ours", base_url=url, api_key={KEY!r}, **limits)
talk = Conversation(get_default_agent(llm, cli_mode=True), workspace=os.getcwd(), max_iteration_per_run=turns)
talk.send_message(task)
talk.run()
"""


def start(at: Place) -> Start:
    """Run the SDK on the image's Python, without its browser: its packages need a build from source."""
    env = {"HOME": HOME, "OPENHANDS_SUPPRESS_BANNER": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    arguments = [at.task, at.v1, *(str(number) for number in (at.window, at.reply, at.turns))]
    return Start(["python3", "-I", "-c", _RUN, *arguments], env)


AGENT = ForeignAgent(
    name="openhands",
    licence="MIT",
    recipe=Recipe((), (_SDK, "litellm==1.100.0", *_NEEDED), (_TOOLS,), "", "3.12"),
    start=start,
    protocol="chat",
    opening=7900,
    budget="turns, context window, tokens of a reply",
    beside="summaries when it condenses",
    shell=("terminal", "command", {}),
    finishes="finish",
)
