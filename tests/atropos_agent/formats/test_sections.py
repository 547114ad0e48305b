"""A section of calls is read whole: it must be closed, and each call in it."""

import pytest

from atropos_agent.formats.deepseek import CALL, CALL_END, CALLS, CALLS_END, SEPARATOR, DeepSeekV31
from atropos_agent.types import Reply
from tools.base import ToolCall


def one(name, given="{}", end=CALL_END):
    return f"{CALL}{name}{SEPARATOR}{given}{end}"


@pytest.mark.parametrize(
    ("inside", "names", "problems"),
    [
        (one("a") + " \n" + one("b"), ["a", "b"], 0),
        (one("a", "{") + one("b"), ["b"], 1),
        (one("a", end="") + one("b"), ["b"], 1),
        (one("a", "{") + one("b", "["), [], 2),
        ("", [], 1),
        (one("a") + "words" + one("b"), [], 1),
    ],
)
def test_each_call_stands_by_itself(inside, names, problems):
    reply = DeepSeekV31().parse(f"{CALLS}{inside}{CALLS_END}")
    assert [call.name for call in reply.calls] == names
    assert len(reply.problems) == problems


def test_a_section_that_is_not_closed_runs_nothing():
    reply = DeepSeekV31().parse(CALLS + one("a") + one("b"))
    assert not reply.calls
    assert reply.problems == (f"the calls are not closed with {CALLS_END}",)


def test_no_calls_are_no_section():
    assert DeepSeekV31().turn(Reply(None, "done", [], ())) == "done"
    assert DeepSeekV31().write(ToolCall("a", {})) == f"{CALLS}{one('a')}{CALLS_END}"
