"""Probes have the shape of the conversation that they stand for."""

import pytest

from atropos_agent.tokens.probes import ReplyKind, is_framed, mark, marks, reply, shape_like, strip_whitespace

FRAME = ("<result>\n", "\n</result>")


@pytest.mark.parametrize("kind", ReplyKind)
def test_a_reply_ends_with_its_mark_and_is_of_its_kind(kind):
    content = reply(7, kind)["content"]
    assert content.endswith(mark(7))
    if kind not in (ReplyKind.HEADED, ReplyKind.CHANNELLED):  # which a template tells by its own control tokens
        assert ReplyKind.of(content) is kind


def test_marks_are_found_in_order():
    assert marks(f"a{mark(3)}b{mark(1)}") == [mark(3), mark(1)]


def test_results_keep_their_frame_and_nothing_else():
    result = {"role": "user", "content": "<result>\nsecret\n</result>"}
    question = {"role": "user", "content": "secret?"}
    assert shape_like([result, question], 5, FRAME) == [
        {"role": "user", "content": f"<result>\n{mark(5)}\n</result>"},
        {"role": "user", "content": mark(6)},
    ]


def test_without_a_frame_every_message_is_a_plain_one():
    result = {"role": "tool", "content": "<result>\nsecret\n</result>"}
    assert shape_like([result], 5, None) == [{"role": "tool", "content": mark(5)}]
    assert not is_framed(result, None)
    assert is_framed(result, FRAME)


def test_white_space_is_squeezed_out():
    assert strip_whitespace(" a\n b\t") == "ab"
