"""Help: at most 15 essential options, all others in groups, and no refused name."""

import re
from typing import Literal

from envs.cli import main
from envs.config import AgentEnvConfig, Count
from envs.options.command import EngineConfig
from envs.options.usage import usage
from envs.swe.program import PROGRAM


def test_help_is_short_and_about_this_environment(capsys):
    assert main(PROGRAM, "serve", ["--help"]) == 0
    said = capsys.readouterr().out
    assert "python -m envs.swe serve [--OPTION VALUE" in said
    essential = said.partition("Essential:")[2].partition("This command:")[0]
    assert "--env.tasks" in essential and "--openai.base_url" in essential
    assert essential.count("\n  --") <= 15
    assert all(name not in said for name in (*AgentEnvConfig.unused, "--env.inference_weight", "--against"))
    main(PROGRAM, "evaluate", ["--help-all"])
    said = capsys.readouterr().out
    assert "--against" in said
    titles = [line for line in said.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles[:-1] == [
        *("Essential:", "Inference server:", "This environment:", "Model and rollouts:", "Run, trainer and evaluation:")
    ]
    assert "--env.inference_weight" in said.partition("Also accepted")[2]
    assert all(f".{name}" not in said for name in AgentEnvConfig.for_python)
    assert all(f".{name}" not in said for name in AgentEnvConfig.unused)


def test_all_options_are_explained_or_said_to_be_atroposlibs():
    said = usage("mine", "plays", AgentEnvConfig, "serve", whole=True)
    ours = [name for name in AgentEnvConfig.model_fields if name not in AgentEnvConfig.for_python]
    options = [*(f"--openai.{name}" for name in EngineConfig.model_fields), *(f"--env.{name}" for name in ours)]
    assert [option for option in options if not re.search(rf"{re.escape(option)}[ ,.\n]", said)] == []


def test_the_text_below_an_option_of_ones_own_explains_it():
    class Own(AgentEnvConfig):
        rounds: Count = 3
        """Rounds of a
        game"""

    lines = usage("mine", "plays", Own, "serve", whole=True).splitlines()
    assert [line.split() for line in lines if "--env.rounds" in line] == [
        ["--env.rounds", "Rounds", "of", "a", "game", "(3)"]
    ]


def test_an_option_with_a_choice_lists_its_values():
    class Own(AgentEnvConfig):
        pace: Literal["slow", "fast"] = "slow"
        """Pace of a game"""
        tone: Literal["high", "low"] | None = None
        """Tone of a game"""

    lines = usage("mine", "plays", Own, "serve", whole=True).splitlines()
    told = {line.split()[0]: line.split("  ")[-1] for line in lines if " of a game" in line}
    assert told == {"--env.pace": "Pace of a game (slow; or fast)", "--env.tone": "Tone of a game (high, low)"}
