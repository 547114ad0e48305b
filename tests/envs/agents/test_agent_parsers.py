"""The parser of `agents update`."""

from envs.agents.parsers import updates_parser


def test_it_shows_all_agents_and_moves_no_pin_unless_told():
    options = updates_parser("atropos-agent").parse_args([])
    assert (options.names, options.write, options.to, options.image) == ([], False, "", None)
