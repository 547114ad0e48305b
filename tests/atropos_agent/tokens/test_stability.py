"""Whether a template leaves replies with calls as they are, told from short conversations."""

import pytest
from native_families import native_tokenizer

from atropos_agent.formats import load_format
from atropos_agent.tokens.calls import CallsKind, learn
from atropos_agent.tokens.probes import ReplyKind
from atropos_agent.tokens.stability import Stability, in_order
from atropos_agent.tokens.template import STUB, ChatTemplate

RESULTS = [{"role": "tool", "tool_call_id": "call_0", "name": "probe", "content": "seen"}]
QUESTION = [{"role": "user", "content": "And?"}]


@pytest.fixture
def glm(smollm2_tokenizer):
    template = ChatTemplate(native_tokenizer(smollm2_tokenizer, "GLM 4.5, by hand"))
    return template, learn(template, load_format("glm"))


def holds(template, messages, last, kinds=(), settled=(), ignore_thinking=False):
    probe = Stability(template, messages, None, STUB, ignore_thinking)
    return probe.holds(True, {*kinds, last}, last, settled)


def test_thinking_stays_behind_results_and_goes_behind_a_question(glm):
    template, shape = glm
    thought = CallsKind(shape, thought=True)
    assert holds(template, RESULTS, thought)
    assert not holds(template, QUESTION, ReplyKind.THOUGHT, kinds=[thought])
    assert holds(template, RESULTS, thought, settled=[thought, ReplyKind.EMPTY])


def test_tags_that_only_the_template_writes_are_a_change(glm):
    """GLM's writes empty thinking where a reply has none."""
    template, shape = glm
    assert holds(template, RESULTS, CallsKind(shape, emptied=True))
    assert not holds(template, RESULTS, CallsKind(shape))
    assert holds(template, RESULTS, CallsKind(shape), ignore_thinking=True)


def test_what_has_no_place_in_the_template_is_a_change(glm):
    template, shape = glm
    assert not holds(template, RESULTS, CallsKind(shape, thought=True, dropped=True))


def test_kinds_have_one_order(glm):
    _, shape = glm
    kinds = [CallsKind(shape, content=True), ReplyKind.THOUGHT, CallsKind(shape), ReplyKind.PLAIN]
    ordered = [ReplyKind.PLAIN, ReplyKind.THOUGHT, CallsKind(shape), CallsKind(shape, content=True)]
    assert in_order(kinds) == in_order(kinds[::-1]) == ordered
