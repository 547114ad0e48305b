"""What is learnt of a chat template by asking it."""

from copy import deepcopy

import pytest
from families import TEMPLATES, family, with_template

from atropos_agent.formats.hermes import Hermes
from atropos_agent.tokens.probes import ReplyKind
from atropos_agent.tokens.template import ChatTemplate, End

RESULT = [{"role": "user", "content": "<tool_response>\nx\n</tool_response>"}]


def continuation(template, kind, **options):
    known = {"has_system": True, "kinds": {kind}, "last": kind, "end": (), "frame": Hermes.frame, **options}
    return template.continuation(RESULT, **known)


def test_a_tokenizer_without_a_template_is_refused(tokenizer):
    class Bare:
        chat_template = None
        name_or_path = "base-model"

    with pytest.raises(ValueError, match="'base-model' has no chat template"):
        ChatTemplate(Bare())


def test_a_template_that_loses_messages_is_refused(smollm2_tokenizer):
    tokenizer = deepcopy(family(smollm2_tokenizer, "plain"))
    tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    with pytest.raises(ValueError, match="loses messages"):
        ChatTemplate(tokenizer)


def test_a_template_that_refuses_a_plain_conversation_is_refused_in_its_own_words(smollm2_tokenizer):
    tokenizer = with_template(smollm2_tokenizer, "{{ functions[0] }}")
    with pytest.raises(ValueError, match="refuses a plain user-assistant-user conversation: 'functions' is undefined"):
        ChatTemplate(tokenizer)


@pytest.mark.parametrize("written", ["tool | tojson", "tool | string"])
def test_a_template_that_wants_a_list_of_tools_gets_one_and_shows_tools(smollm2_tokenizer, written):
    plain = family(smollm2_tokenizer, "plain").chat_template
    template = ChatTemplate(
        with_template(smollm2_tokenizer, f"{{% for tool in tools %}}{{{{ {written} }}}}{{% endfor %}}{plain}")
    )
    assert (template.wants_tools, template.wants_thinking, template.shows_tools) == (True, False, True)
    assert not ChatTemplate(with_template(smollm2_tokenizer, plain)).wants_tools


@pytest.mark.parametrize("name", TEMPLATES)
def test_habits_are_known(smollm2_tokenizer, name):
    template = ChatTemplate(family(smollm2_tokenizer, name))
    assert template.opens_thinking == (name == "drops earlier thinking, opens it")
    assert template.joins_turns == (name == "no system role, roles alternate")
    assert template.folds_system == (name == "no system role, roles alternate")
    assert bool(template.header) == (name == "the model writes a header")


def test_what_follows_a_reply_ends_where_the_next_one_begins(smollm2_tokenizer):
    template = ChatTemplate(family(smollm2_tokenizer, "plain"))
    added = template.decode(continuation(template, ReplyKind.PLAIN))
    assert added == f"<|im_end|>\n<|im_start|>user\n{RESULT[0]['content']}<|im_end|>\n<|im_start|>assistant\n"
    assert continuation(template, ReplyKind.PLAIN, end=(template.close_id,))[0] != template.close_id


def test_a_result_is_no_question_as_long_as_its_frame_is_known(smollm2_tokenizer):
    """The template drops thinking before the last question, by the frame of Hermes' results."""
    template = ChatTemplate(family(smollm2_tokenizer, "keeps thinking since the last question"))
    assert continuation(template, ReplyKind.THOUGHT) is not None
    assert continuation(template, ReplyKind.THOUGHT, frame=None) is None


def test_an_end_that_the_template_would_not_write_is_no_continuation(smollm2_tokenizer):
    template = ChatTemplate(family(smollm2_tokenizer, "the model writes a header"))
    (other,) = template.stop_ids - {template.close_id}
    assert continuation(template, ReplyKind.HEADED, end=(other,)) is None


def test_the_end_of_a_turn_is_found_behind_white_space_alone(smollm2_tokenizer):
    template = ChatTemplate(family(smollm2_tokenizer, "plain"))
    words = template.encode("done", continues=True)
    newline = template.encode("\n", continues=True)
    assert template.turn_end([*words, template.close_id, *newline], "stop") == len(words)
    assert template.turn_end([template.close_id, *words], "length") is None
    assert template.turn_end([], "stop") is None


def test_a_role_that_is_not_shown_is_not_known(smollm2_tokenizer):
    template = ChatTemplate(family(smollm2_tokenizer, "system in the last question"))
    assert template.knows_role("user")
    assert ChatTemplate(family(smollm2_tokenizer, "plain")).knows_role("tool")


def test_what_is_known_of_shapes_does_not_grow_without_end(smollm2_tokenizer, monkeypatch):
    monkeypatch.setattr("atropos_agent.tokens.template._SHAPES", 3)
    template = ChatTemplate(smollm2_tokenizer)
    for number in range(1, 8):
        messages = [{"role": "user", "content": "x"}] * number
        template.continuation(messages, has_system=False, kinds={ReplyKind.PLAIN}, last=ReplyKind.PLAIN, end=())
        assert 1 <= len(template._stable) <= 3


def test_ids_of_large_prompts_are_not_kept(smollm2_tokenizer):
    template = ChatTemplate(smollm2_tokenizer)
    for text, kept in (("word " * 1000, 1), ("word " * 60_000, 1), ("word " * 2000, 2)):
        messages = [{"role": "user", "content": text}]
        assert template.prompt(messages) == template.encode(template.render(messages))
        assert template._encoded.cache_info().currsize == kept


def test_what_a_reply_ends_with_is_told(smollm2_tokenizer):
    template = ChatTemplate(smollm2_tokenizer)
    ids = template.encode("It is done", continues=True)
    assert template.end_of(ids) is End.NONE
    assert template.end_of([*ids, template.close_id]) is End.TOKEN
    assert template.end_of([*ids, template.close_id, *template.encode("\n", continues=True)]) is End.TOKEN
    assert template.end_of(ids, ["done"]) is End.STRING
    assert template.end_of(ids, ["It"]) is End.STRING or len(ids) > 9
    assert template.end_of([]) is End.NONE


def test_a_template_that_refuses_replies_without_thinking_is_given_an_empty_thought(smollm2_tokenizer):
    """Hermes 4's does so with thinking=true. Written by hand; it is not that template."""
    tokenizer = deepcopy(smollm2_tokenizer)
    tokenizer.chat_template = (
        "{% for m in messages %}{% set content = m.content %}{% if m.role == 'assistant' and content %}"
        "{% set content = '<think> </think>' + content.split('</think>', 1)[1] %}{% endif %}"
        "{{ '<|im_start|>' + m.role + '\n' + content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    template = ChatTemplate(tokenizer)
    assert template.wants_thinking
    asked = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    assert "<think> </think>\nb<|im_end|>" in template.render(asked)
    asked[1]["content"] = "<think>hm</think>b"
    assert "<think> </think>b<|im_end|>" in template.render(asked)
