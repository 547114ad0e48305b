"""The parsers of the lab's commands."""

import pytest

from envs.lab.parsers import GIVEN, demo_parser, learn_parser, warm_start_parser
from envs.lab.presets import PRESETS


def test_what_replaces_a_field_of_a_preset_is_left_to_it_unless_given():
    assert PRESETS["smoke"].__dataclass_fields__.keys() >= GIVEN.keys()
    plain = learn_parser().parse_args([])
    assert {getattr(plain, name) for name in GIVEN} == {None}
    assert learn_parser().parse_args(["--group-size", "2"]).group_size == 2


def test_each_takes_what_it_names():
    given = demo_parser().parse_args(["--env", "workers=ray", "--env", "seed=3"]).env
    assert given == [("workers", "ray"), ("seed", "3")]
    assert warm_start_parser().parse_args(["--tool-format", "hermes"]).tool_format == "hermes"


def test_a_tool_format_that_is_none_is_refused(capsys):
    with pytest.raises(SystemExit):
        warm_start_parser().parse_args(["--tool-format", "hermse"])
    assert "did you mean hermes?" in capsys.readouterr().err


@pytest.mark.parametrize("parser", [learn_parser, warm_start_parser])
def test_an_agent_that_is_none_is_refused_by_the_option_that_was_given(parser, capsys):
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["--agent", "codexx"])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "argument --agent: codexx: there is none of that name; did you mean codex?" in said
    assert "--env.agent" not in said
