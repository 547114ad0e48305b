"""What makes a reply sound, and each way in which it is not, by name."""

from functools import reduce
from types import SimpleNamespace

import pytest

from atropos_agent.engines.completions import Answer
from atropos_agent.engines.replies import ENDED, Defect, UnsoundReply, check_answer, check_chat_answer
from atropos_agent.types import TokenMismatch


def answer(ids=(5, 6), logprobs=(-0.5, 0.0), reason="stop", prompt=(1, 2)):
    return Answer((list(prompt), [list(ids)], [list(logprobs)], [reason]))


def known(ids):
    return next((i for i in ids if not 0 <= i < 100), None)


@pytest.mark.parametrize("reason", [*sorted(ENDED), {"type": "stop", "matched": 2}])
def test_a_sound_reply_is_taken_as_it_is(reason):
    completion = check_answer(answer(reason=reason), [1, 2], known)
    assert (list(completion.ids), completion.logprobs) == ([5, 6], [-0.5, 0.0])
    assert completion.finish_reason in ENDED
    assert completion.version is None


@pytest.mark.parametrize(
    ("given", "defect", "passing"),
    [
        (answer(reason="abort"), Defect.ABORTED, True),
        (answer(reason=None), Defect.ABORTED, True),
        (answer(reason=""), Defect.ABORTED, True),
        (answer(reason={"type": "abort", "message": "paused"}), Defect.ABORTED, True),
        (answer(reason="error"), Defect.FAILED, True),
        (answer(reason="cancelled"), Defect.FAILED, True),
        (answer(reason="cancelled" * 10_000), Defect.FAILED, True),
        (answer(reason="content_filter"), Defect.FILTERED, False),
        (Answer(([1, 2], [], [], [])), Defect.MISSING, False),
        (Answer(([1, 2], [[5], [6]], [[-0.5], [-0.5]], ["stop", "stop"])), Defect.SEVERAL, False),
        (answer(ids=(), logprobs=()), Defect.EMPTY, False),
        (answer(ids=(5, 999999)), Defect.UNKNOWN_IDS, False),
        (answer(ids=(-1, 5)), Defect.UNKNOWN_IDS, False),
        (answer(ids=(5, None)), Defect.UNKNOWN_IDS, False),
        (answer(ids=("5", 6)), Defect.UNKNOWN_IDS, False),
        (answer(ids=(5.0, 6)), Defect.UNKNOWN_IDS, False),
        (answer(ids=(True, 6)), Defect.UNKNOWN_IDS, False),
    ],
)
def test_every_other_reply_is_the_servers_failure_by_name(given, defect, passing):
    with pytest.raises(UnsoundReply) as caught:
        check_answer(given, [1, 2], known)
    assert caught.value.defect is defect
    assert caught.value.passing is passing
    assert len(str(caught.value)) < 1000
    assert caught.value.lost_tokens == sum(map(len, given[1]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (answer(prompt=(1, 3)), "another prompt"),
        (answer(prompt=(1, reduce(lambda deep, _: [deep], range(2000), []))), "another prompt"),
        (answer(logprobs=(-0.5,)), "2 ids but 1 logprobs"),
        (answer(logprobs=(-0.5, 0.1)), r"0\.1 as the logprob of token 1 of 2; one is finite and not above 0"),
        (answer(logprobs=(-0.5, None)), "None as the logprob of token 1"),
        (answer(logprobs=(-0.5, float("nan"))), "nan as the logprob of token 1"),
        (answer(logprobs=(-0.5, float("-inf"))), "-inf as the logprob of token 1"),
        (answer(logprobs=(-0.5, "x")), "'x' as the logprob of token 1"),
        (answer(logprobs=(-0.5, False)), "False as the logprob of token 1"),
        (answer(logprobs=(-0.5, -(10**400))), "-10+.* as the logprob of token 1"),
    ],
)
def test_what_contradicts_the_request_is_refused_and_its_tokens_are_counted(given, expected):
    with pytest.raises(TokenMismatch, match=expected) as caught:
        check_answer(given, [1, 2], known)
    assert caught.value.lost_tokens == 2


def test_the_vocabulary_is_the_tokenizers_own(any_tokenizer, template):
    last = max(any_tokenizer.get_vocab().values())
    assert template.unknown_id([0, 5, last, *template.stop_ids]) is None
    assert template.unknown_id([5, last + 1]) == last + 1
    assert template.unknown_id([5, -1]) == -1
    assert template.unknown_id([999999]) == 999999


def chat(*texts, reason="stop", tokens=7, **more):
    choices = [SimpleNamespace(message=SimpleNamespace(content=text, **more), finish_reason=reason) for text in texts]
    return SimpleNamespace(choices=choices, usage=SimpleNamespace(completion_tokens=tokens))


@pytest.mark.parametrize(
    ("response", "defect", "lost"),
    [
        (chat(), Defect.MISSING, 0),
        (chat("a", "b"), Defect.SEVERAL, 7),
        (chat("", tokens=0), Defect.EMPTY, 0),
        (chat("", tokens=None), Defect.EMPTY, 0),
        (chat(None, refusal="I can't."), Defect.FILTERED, 7),
        (chat("a", reason=None), Defect.ABORTED, 7),
        (chat("a", reason="content_filter"), Defect.FILTERED, 7),
    ],
)
def test_chat_replies_are_sound_by_the_same_rules(response, defect, lost):
    with pytest.raises(UnsoundReply) as caught:
        check_chat_answer(response)
    assert (caught.value.defect, caught.value.lost_tokens) == (defect, lost)
    assert check_chat_answer(chat("a")).text == "a"


@pytest.mark.parametrize("response", [chat(""), chat(None, reason="length", tokens=None)])
def test_a_silent_end_and_a_limit_used_up_by_hidden_thoughts_are_the_models_own(response):
    assert check_chat_answer(response).text == ""
