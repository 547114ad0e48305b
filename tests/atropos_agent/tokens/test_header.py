"""The header of replies: what is content after it, and what a template tells such replies apart by."""

import pytest

from atropos_agent.tokens.encoding import CUT
from atropos_agent.tokens.header import Header
from atropos_agent.tokens.probes import ReplyKind

CONTROLS = ("<|channel|>", "<|message|>")
HEADER = Header("<|channel|>final<|message|>", CONTROLS)
SPELLED = CUT.join("<|channel|>") + "final" + CUT.join("<|message|>")


@pytest.mark.parametrize(
    ("text", "content", "kind"),
    [
        ("<|channel|>final<|message|>done", "done", ReplyKind.HEADED),
        ("<|channel|>analysis<|message|>hm<|channel|>final<|message|>done", "done", ReplyKind.CHANNELLED),
        ("done", "done", ReplyKind.PLAIN),
    ],
)
def test_what_stands_behind_the_last_header_is_content(text, content, kind):
    assert HEADER.content_of(text) == content
    assert HEADER.kind_of(text) is kind


def test_a_header_that_was_sampled_in_other_ids_is_one_too():
    assert HEADER.content_of(f"{SPELLED}done") == "done"
    assert HEADER.content_of(f"see {SPELLED}done") == f"see {SPELLED}done", "further inside it is text"


def test_without_a_header_all_is_content_and_thinking_tells_replies_apart():
    none = Header("", ())
    assert not none
    assert none.content_of("<think>hm</think>done") == "<think>hm</think>done"
    assert none.kind_of("<think>hm</think>done") is ReplyKind.THOUGHT
