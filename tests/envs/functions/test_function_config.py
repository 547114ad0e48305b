"""Options of functions."""

from pathlib import Path

from envs.functions.config import FunctionConfig
from envs.options.reading import read_options


def test_prompt_templates_are_named_with_their_files():
    options = read_options(FunctionConfig, ["--env.prompts.greeting", "a.txt", "--env.sandbox", "local"])
    assert (options.env.prompts, options.env.sandbox) == ({"greeting": Path("a.txt")}, "local")
