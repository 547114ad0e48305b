"""What is asked and answered."""

import pytest

from atropos_agent.gateway.requests import Answer, Fault, Refusal, ReplyCall
from tools.base import ToolCall


@pytest.mark.parametrize(("fault", "status"), [(Fault.TOO_LONG, 400), (Fault.OURS, 500), (Fault.TOO_LARGE, 413)])
def test_a_fault_has_its_status(fault, status):
    assert fault.status == status


def test_a_refusal_names_its_field():
    refusal = Refusal("n: one", param="n")
    assert (refusal.fault, refusal.param, str(refusal)) == (Fault.INVALID, "n", "n: one")


def test_the_whole_of_an_answer_holds_its_broken_calls():
    calls = (ReplyCall("a", "say", "{}", ToolCall("say", {}, "a")), ReplyCall("b", "say", '{"text'))
    assert Answer(0, None, "First.", calls, "stop", 1, 1).whole == 'First.\n{"text'
    assert Answer(0, None, "", calls[:1], "stop", 1, 1).whole == ""
