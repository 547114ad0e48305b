"""gptme (MIT, PyPI): Chat Completions, streamed; a shell and an editor, and system messages in mid-conversation."""

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe

_RUN = f"import sys; sys.path.insert(0, {PACK + '/python'!r}); from gptme.cli.main import main; main()"


def start(at: Place) -> Start:
    """Run `gptme` on the image's Python, with calls as the protocol has them."""
    options = ["--non-interactive", "--system", "short", "--tool-format", "tool"]
    options += ["--tools", "shell,save,patch,read,complete"]
    env = {"HOME": HOME, "OPENAI_BASE_URL": at.v1, "OPENAI_API_KEY": KEY, "GPTME_MAX_TOKENS": str(at.reply)}
    return Start(["python3", "-I", "-c", _RUN, *options, "--model", "local/ours", at.task], env)


AGENT = ForeignAgent(
    name="gptme",
    licence="MIT",
    recipe=Recipe(pypi=("gptme==0.35.1",)),
    start=start,
    protocol="chat",
    opening=2700,
    budget="tokens of a reply",
    beside="nothing",
    shell=("shell", "command", {}),
    finishes="complete",
    late_system=True,
)
