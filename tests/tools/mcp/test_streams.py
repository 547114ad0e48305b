"""The end of a server, by how its program ended."""

import pytest

from tools.base import ToolError
from tools.mcp.servers import BrokenServer, CutOff, MCPServer

pytest.importorskip("mcp", reason="the extra mcp is not installed")

from tools.mcp.streams import Watch


@pytest.mark.parametrize(
    ("exit_code", "kind", "said"),
    [
        (137, CutOff, "was ended by signal 9"),
        (1, BrokenServer, "ended by itself with status 1: no database"),
        (127, BrokenServer, "ended by itself with status 127"),
        (None, BrokenServer, "closed its output"),
    ],
)
def test_a_signal_may_be_the_models_doing_and_every_other_end_is_the_servers(exit_code, kind, said):
    watch = Watch(MCPServer("notes", "stdio", ("notes",)))
    watch.said = "no database\n"
    error = watch.end_of_program(exit_code)
    assert type(error) is kind and said in str(error)
    assert isinstance(error, ToolError) == (kind is CutOff)


def test_the_first_end_counts():
    watch = Watch(MCPServer("notes", "stdio", ("notes",)))
    with pytest.raises(CutOff, match="more than 4 MB"):
        watch.hear(5 << 20)
    watch.end(ValueError("first"))
    watch.end(ValueError("second"))
    assert str(watch.ended) == "first"
