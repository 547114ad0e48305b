"""aider (Apache-2.0, PyPI): Chat Completions, streamed; no tools: its edits are text."""

import json

from envs.agents.facts import HOME, KEY, PACK, ForeignAgent, Place, Start
from envs.agents.recipes import Recipe

_RUN = f"""import pathlib, sys; sys.path.insert(0, {PACK + "/python"!r})
small = [path for path in sorted(pathlib.Path().rglob("*")) if path.is_file() and path.stat().st_size < 16384]
sys.argv += [str(path.absolute()) for path in small if not any(part.startswith(".") for part in path.parts)][:20]
from aider.main import main; main()"""
_OFF = "git gitignore auto-lint show-model-warnings check-update show-release-notes detect-urls pretty"


def start(at: Place) -> Start:
    """Run `aider` once on the image's Python, with the small files of the working directory in its chat."""
    bounds = {"max_input_tokens": at.window, "max_output_tokens": at.reply, "max_tokens": at.reply}
    written = {name: f"{HOME}/{name}" for name in ("input-history-file", "chat-history-file", "model-metadata-file")}
    options = [part for name, path in written.items() for part in (f"--{name}", path)]
    options += ["--yes-always", "--analytics-disable", "--no-suggest-shell-commands"]
    options += [f"--no-{name}" for name in _OFF.split()]
    options += ["--edit-format", "diff", "--map-tokens", "0", "--model", "openai/ours", "--message", at.task]
    env = {"HOME": HOME, "OPENAI_API_BASE": at.v1, "OPENAI_API_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    files = {f"{HOME}/model-metadata-file": json.dumps({"openai/ours": {**bounds, "litellm_provider": "openai"}})}
    return Start(["python3", "-I", "-c", _RUN, *options], env, files)


AGENT = ForeignAgent(
    name="aider",
    licence="Apache-2.0",
    recipe=Recipe(pypi=("aider-chat==0.86.2",), least_python="3.10"),
    start=start,
    protocol="chat",
    opening=2190,
    budget="context window",
    beside="nothing",
    shell=None,
    edits=lambda path, text: f"{path}\n```\n<<<<<<< SEARCH\n=======\n{text}\n>>>>>>> REPLACE\n```\n",
)
