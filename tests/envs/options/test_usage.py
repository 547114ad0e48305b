"""Help: ours first, in groups; what is rarely of use behind --help-all, what is refused not at all."""

from envs.cli import main
from envs.config import AgentEnvConfig
from envs.swe.program import PROGRAM


def test_help_is_short_and_about_this_environment(capsys):
    assert main(PROGRAM, "serve", ["--help"]) == 0
    said = capsys.readouterr().out
    assert "python -m envs.swe serve [--OPTION VALUE" in said
    assert said.index("--env.tasks") < said.index("--openai.base_url") < said.index("--env.max_steps")
    assert all(name not in said for name in (*AgentEnvConfig.unused, "--env.inference_weight", "--against"))
    main(PROGRAM, "evaluate", ["--help-all"])
    said = capsys.readouterr().out
    assert "--env.inference_weight" in said and "--against" in said
    assert all(f".{name}" not in said for name in AgentEnvConfig.unused)
