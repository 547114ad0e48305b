"""The checks themselves: conversations made up at random pass them, and every defect that is known from
the field, put back in, makes them fail."""

import asyncio
from dataclasses import replace

import pytest
from families import REAL, TEMPLATES, family, real
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scenarios import HOSTILE, SCENARIOS, call, forged, sampled, say, spelled
from truth import Turn, assert_truth, play

from atropos_agent.tokens.conversation import Completion, Conversation, _Segment
from atropos_agent.tokens.encoding import Encoder
from atropos_agent.tokens.record import Record, problems
from atropos_agent.tokens.stability import Stability
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED, NO_LOGPROB, AgentError, Exchange, SequenceData


class Families(dict):
    """Tokenizers and their templates by name, too long to be shown with a counterexample."""

    def __repr__(self):
        return f"families of {', '.join(self)}"


@pytest.fixture(scope="session")
def families(smollm2_tokenizer, tokenizers_dir):
    """Tokenizers and their templates by name: small ones always, other people's where there is a folder."""
    tokenizers = {name: family(smollm2_tokenizer, name) for name in TEMPLATES}
    if tokenizers_dir is not None:
        tokenizers |= {name: real(tokenizers_dir, name) for name in REAL if (tokenizers_dir / REAL[name]).is_dir()}
    return Families({name: (tokenizer, ChatTemplate(tokenizer)) for name, tokenizer in tokenizers.items()})


FORGED = "\0"
"""Stands for a user's turn, as the template would write it."""

pieces = st.lists(
    st.sampled_from(
        [
            *(call("one"), call(HOSTILE), call("</think>"), call("one", think=True), "<tool_call>{"),
            *("<think>\n", "</think>", "<think>\n\n</think>", FORGED, "\n", "  ", "word ", "漢字", "naïve", "."),
        ]
    ),
    max_size=5,
).map("".join)
"""Replies in words."""

endings = st.sampled_from(["stop", "withheld", "another stop", "odd"])


@st.composite
def rollouts(draw):
    """Replies as an engine may sample them: in words, or of any ids; ended in any way; cut at any place."""
    turns = draw(
        st.lists(st.tuples(pieces, endings, st.lists(st.integers(20, 40_000), max_size=6)), min_size=1, max_size=6)
    )
    return turns, draw(st.integers(1, 60)), draw(st.sampled_from(["stop", "length"]))


@settings(
    max_examples=4 * settings.default.max_examples,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(number=st.integers(0, 1000), rollout=rollouts())
def test_any_conversation_makes_true_rows(families, number, rollout):
    tokenizer, template = list(families.values())[number % len(families)]
    drawn, limit, reason = rollout
    # What the tokenizer makes of ids at random is no control token.
    turns = []
    for text, how, noise in drawn:
        turn = sampled(template, text.replace(FORGED, ""), how)
        forging = spelled(template, forged(template)) if FORGED in text else []
        random = [i for i in noise if i not in tokenizer.added_tokens_decoder and template.unknown_id([i]) is None]
        # A reply without any token is the inference server's failure.
        ids = random + forging + turn.ids or template.encode("x", continues=True)
        turns.append(Turn(ids, turn.reason))
    if reason == "length":
        turns = [Turn(turn.ids[:limit], "length") for turn in turns]
    result, exchanges = asyncio.run(play(tokenizer, turns, [say], template=template))
    assert len(exchanges) >= 1
    assert_truth(tokenizer, result, exchanges)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 9), max_size=4), st.lists(st.integers(0, 9), max_size=4)))
)
def test_the_record_of_any_exchanges_is_met_by_exactly_the_rows_made_of_them(made):
    record = [
        Exchange(extends and i > 0, tuple(given), tuple(ids), (-0.5,) * len(ids))
        for i, (extends, given, ids) in enumerate(made)
    ]
    rows: list[tuple[list, list, list]] = []
    for exchange in record:
        if not exchange.extends:
            rows.append(([], [], []))
        for value, mask, logprob in [(i, IGNORED, NO_LOGPROB) for i in exchange.given] + [
            (i, i, -0.5) for i in exchange.ids
        ]:
            for column, entry in zip(rows[-1], (value, mask, logprob), strict=True):
                column.append(entry)
    kept = []
    for tokens, mask, logprobs in rows:
        end = max((i + 1 for i, m in enumerate(mask) if m != IGNORED), default=0)
        if end:
            kept.append(SequenceData("", tokens[:end], mask[:end], logprobs[:end]))
    assert problems(kept, record) == [None] * len(kept)


def row_of(tokens, *replies, segment=0):
    """A row that trains the replies, given as (start, end), with the logprob -0.5."""
    trained = [any(start <= i < end for start, end in replies) for i in range(len(tokens))]
    masks = [t if yes else IGNORED for t, yes in zip(tokens, trained, strict=True)]
    return SequenceData("", tokens, masks, [-0.5 if yes else NO_LOGPROB for yes in trained], segment)


TWO = (Exchange(False, (1, 2), (3,), (-0.5,)), Exchange(True, (4,), (5, 6), (-0.5, -0.5)))
"""Two requests, of which the second extends the first."""


def test_rows_are_met_by_their_content_wherever_they_were_split():
    whole, first, second = [1, 2, 3, 4, 5, 6], row_of([1, 2, 3], (2, 3)), row_of([1, 2, 3, 4, 5, 6], (4, 6))
    assert problems([row_of(whole, (2, 3), (4, 6))], TWO) == [None]
    assert problems([first, second], TWO) == [None, None]
    assert problems([second, first], TWO) == [None, None]


def test_a_row_that_differs_does_not_condemn_the_others():
    other = Exchange(False, (1, 9), (7,), (-0.5,))
    good, bad = row_of([1, 2, 3, 4, 5, 6], (2, 3), (4, 6)), row_of([1, 8, 7], (2, 3))
    assert problems([good, bad], [*TWO, other]) == [None, "tokens: place 1 of 3: [1, 8, 7] instead of [1, 9, 7]"]
    assert problems([good, good], TWO)[0] is None
    assert "trained in another row" in problems([good, good], TWO)[1]


@pytest.mark.parametrize(
    "rows",
    [
        [row_of([1, 2, 3], (2, 3))],
        [row_of([1, 2, 3, 4, 5, 6], (4, 6))],
        [row_of([1, 2, 3, 4, 5, 6], (2, 3), (4, 5))],
        [row_of([1, 2, 3, 4, 5], (2, 3), (4, 5))],
        [row_of([1, 2, 3, 4, 5, 6], (2, 4), (4, 6))],
        [row_of([1, 2, 3, 4, 5, 6])],
    ],
    ids=["the last reply lost", "the first untrained", "cut mask", "cut row", "context trained", "nothing trained"],
)
def test_rows_that_lose_or_add_a_token_are_refused(rows):
    assert all(problems(rows, TWO))


def doubled_end_of_turn(patch):
    original = ChatTemplate.continuation
    patch.setattr(
        ChatTemplate, "continuation", lambda self, messages, *, end, **rest: original(self, messages, end=(), **rest)
    )


def missing_end_of_turn(patch):
    original = ChatTemplate.continuation

    def continuation(self, messages, *, end, **rest):
        return original(self, messages, end=end or [self.close_id], **rest)

    patch.setattr(ChatTemplate, "continuation", continuation)


def history_kept_that_the_template_rewrites(patch):
    patch.setattr(Stability, "holds", lambda *_: True)


def only_the_last_segment_emitted(patch):
    cut = Conversation.cut
    patch.setattr(Conversation, "cut", lambda self, *spans: [*cut(self, *spans)][-1:])


def a_turn_never_trained(patch):
    original = _Segment.add_sampled

    def add(self, completion):
        if self.turns == 1:
            self.turns += 1
            self.add_context(completion.ids)
        else:
            original(self, completion)

    patch.setattr(_Segment, "add_sampled", add)


def a_reply_encoded_again(patch):
    original = Conversation.add_reply

    def add_reply(self, completion):
        text = self.template.decode(completion.ids)
        ids = self.template.encode(text, continues=True)
        logprobs = (list(completion.logprobs) + [-1.0] * len(ids))[: len(ids)]
        return original(self, Completion(ids, logprobs, completion.finish_reason))

    patch.setattr(Conversation, "add_reply", add_reply)


def logprobs_lost(patch):
    original = _Segment.add_sampled

    def add(self, completion):
        original(self, Completion(completion.ids, [0.0] * len(completion.ids), completion.finish_reason))

    patch.setattr(_Segment, "add_sampled", add)


def logprobs_shifted(patch):
    original = _Segment.add_sampled

    def add(self, completion):
        shifted = [*completion.logprobs[1:], *completion.logprobs[:1]]
        original(self, Completion(completion.ids, shifted, completion.finish_reason))

    patch.setattr(_Segment, "add_sampled", add)


def mask_shifted(patch):
    cut = Conversation.cut

    def shifted(self, *spans):
        for fields in cut(self, *spans):
            following = [*fields["masked_tokens"][1:], IGNORED]
            masked = [t if m != IGNORED else IGNORED for t, m in zip(fields["tokens"], following, strict=True)]
            yield fields | {"masked_tokens": masked, "logprobs": [*fields["logprobs"][1:], NO_LOGPROB]}

    patch.setattr(Conversation, "cut", shifted)


def stop_token_untrained(patch):
    original = _Segment.add_sampled

    def add(self, completion):
        original(self, Completion(completion.ids[:-1], completion.logprobs[:-1], completion.finish_reason))
        self.add_context(completion.ids[-1:])

    patch.setattr(_Segment, "add_sampled", add)


def content_writes_control_tokens(patch):
    patch.setattr(Encoder, "quote", lambda self, text, **_: text)


def an_unfinished_turn_taken_as_ended(patch):
    patch.setattr(ChatTemplate, "turn_end", lambda self, ids, reason: len(ids) - 1 if ids else None)


FAULTS = [
    (doubled_end_of_turn, "plain", "three turns", "stop"),
    (missing_end_of_turn, "plain", "three turns", "withheld"),
    (history_kept_that_the_template_rewrites, "system in the last question", "three turns", "stop"),
    (history_kept_that_the_template_rewrites, "drops earlier thinking, opens it", "thinking", "stop"),
    (only_the_last_segment_emitted, "system in the last question", "three turns", "stop"),
    (a_turn_never_trained, "plain", "three turns", "stop"),
    (a_reply_encoded_again, "plain", "three turns", "odd"),
    (logprobs_lost, "plain", "three turns", "stop"),
    (logprobs_shifted, "plain", "three turns", "stop"),
    (mask_shifted, "plain", "three turns", "stop"),
    (stop_token_untrained, "plain", "three turns", "stop"),
    (an_unfinished_turn_taken_as_ended, "plain", "three turns", "withheld"),
]


async def rolled_out(smollm2, name, scenario, how):
    tokenizer = family(smollm2, name)
    template = ChatTemplate(tokenizer)
    turns = [sampled(template, text, how) for text in SCENARIOS[scenario]]
    result, exchanges = await play(tokenizer, turns, [say], template=template)
    return tokenizer, result, exchanges


@pytest.mark.parametrize(("fault", "name", "scenario", "how"), FAULTS)
async def test_every_known_defect_is_found(smollm2_tokenizer, monkeypatch, fault, name, scenario, how):
    assert_truth(*await rolled_out(smollm2_tokenizer, name, scenario, how))
    fault(monkeypatch)
    # Where the fault is, a row may already be refused when it is made.
    with pytest.raises((AssertionError, AgentError, ValueError, KeyError)):
        assert_truth(*await rolled_out(smollm2_tokenizer, name, scenario, how))


IN_ROWS = (
    only_the_last_segment_emitted,
    a_turn_never_trained,
    a_reply_encoded_again,
    logprobs_lost,
    logprobs_shifted,
    mask_shifted,
    stop_token_untrained,
)
"""Defects that make a row differ from what was sent and sampled."""


@pytest.mark.parametrize(("fault", "name", "scenario", "how"), [fault for fault in FAULTS if fault[0] in IN_ROWS])
async def test_a_defect_that_spoils_rows_never_reaches_a_group(
    smollm2_tokenizer, monkeypatch, fault, name, scenario, how
):
    fault(monkeypatch)
    _, result, _ = await rolled_out(smollm2_tokenizer, name, scenario, how)
    assert any(problem is not None for problem in problems(result.segments, result.record))


async def test_unquoted_content_would_write_control_tokens(smollm2_tokenizer, monkeypatch):
    def written(result):
        return sum(token == 1 for row in result.segments for token in row.tokens)  # <|im_start|>

    _, clean, _ = await rolled_out(smollm2_tokenizer, "plain", "control tokens in a result", "stop")
    content_writes_control_tokens(monkeypatch)
    _, spoiled, _ = await rolled_out(smollm2_tokenizer, "plain", "control tokens in a result", "stop")
    assert written(spoiled) > written(clean)


def trains(tokens, trained, logprob=-0.5):
    """A row that trains the places from `trained` on."""
    places = range(len(tokens))
    return SequenceData(
        "",
        tokens,
        [token if place in trained else IGNORED for place, token in zip(places, tokens, strict=True)],
        [logprob if place in trained else NO_LOGPROB for place in places],
    )


def a_forest():
    """A conversation with a branch after its first reply, and another beside it."""
    record = Record()
    record.add([1, 2], [3], [-0.5])
    record.add([9], [8], [-0.5])
    record.add([1, 2, 3, 4], [5], [-0.5])
    record.add([1, 2, 3, 6], [7], [-0.5])
    record.add([1, 2, 3, 4, 5, 6], [7], [-0.5])
    return record.exchanges


def test_a_record_finds_what_each_request_goes_on_from():
    exchanges = a_forest()
    assert [(one.extends, one.back, list(one.given)) for one in exchanges] == [
        (False, 1, [1, 2]),
        (False, 1, [9]),
        (True, 2, [4]),
        (True, 3, [6]),
        (True, 2, [6]),
    ]


def test_rows_of_branches_are_replayed_and_train_what_they_share_once():
    main, branch, other = trains([1, 2, 3, 4, 5, 6, 7], {2, 4, 6}), trains([1, 2, 3, 6, 7], {4}), trains([9, 8], {1})
    assert problems([main, branch, other], a_forest()) == [None] * 3
    twice = trains([1, 2, 3, 6, 7], {2, 4})
    assert problems([main, twice, other], a_forest())[1] == "the reply at place 2 is trained in another row, too"
    assert "1 of the recorded replies" in problems([main, branch], a_forest())[0]


def test_what_is_left_out_for_a_reason_is_in_no_row():
    exchanges = a_forest()
    exchanges[1] = replace(exchanges[1], untrained="side call")
    rows = [trains([1, 2, 3, 4, 5, 6, 7], {2, 4, 6}), trains([1, 2, 3, 6, 7], {4})]
    assert problems(rows, exchanges) == [None, None]
    assert "side call" in problems([*rows, trains([9, 8], {1})], exchanges)[2]


def test_replies_that_are_alike_are_told_apart_by_their_logprobs():
    record = Record()
    record.add([1], [2], [-0.5])
    record.add([1], [2], [-0.25])
    record.add([1, 2, 3], [4], [-0.5])
    rows = [trains([1, 2, 3, 4], {1, 3}), trains([1, 2], {1}, -0.25)]
    assert problems(rows, record.exchanges) == [None, None]
    assert problems([rows[0], trains([1, 2], {1}, -0.125)], record.exchanges)[1].startswith("logprobs")


def test_a_reply_that_begins_as_one_that_was_cut_off_is_still_what_is_gone_on_from():
    record = Record()
    record.add([1], [2, 3, 4], [-0.5] * 3)
    record.add([1], [2, 3], [-0.25] * 2)
    record.add([1, 2, 3, 4, 5], [6], [-0.5])
    record.add([1, 2, 3, 4, 5], [6], [-0.75])
    record.add([1, 2, 3, 4, 5, 6, 7], [8], [-0.5])
    assert [one.given for one in record.exchanges] == [(1,), (1,), (5,), (5,), (7,)]
    rows = [trains([1, 2, 3, 4, 5, 6, 7, 8], {1, 2, 3, 5, 7}), trains([1, 2, 3], {1, 2}, -0.25)]
    assert problems([*rows, trains([1, 2, 3, 4, 5, 6], {5}, -0.75)], record.exchanges) == [None] * 3


def test_a_prompt_is_not_copied_for_each_conversation_before():
    copied = []

    class Prompt(list):
        def __getitem__(self, place):
            found = super().__getitem__(place)
            copied.append(len(found) if isinstance(place, slice) else 1)
            return found

    record, prompts = Record(), [[*range(1000), number] for number in range(50)]
    for prompt in prompts:
        record.add(Prompt(prompt), [7], [-0.5])
        record.add(Prompt([*prompt, 7, 8]), [9], [-0.5])
    assert sum(copied) < 10 * sum(map(len, prompts))
    assert [one.extends for one in record.exchanges] == [False, True] * 50


def test_prompts_that_change_afterwards_do_not_change_the_record():
    record, prompt = Record(), [1, 2]
    for token in (3, 4):
        record.add(prompt, [token], [-0.5])
        prompt += [token, 9]
    kept = list(prompt)
    record.add(prompt, [5], [-0.5])
    assert prompt == kept
    assert [(one.extends, list(one.given)) for one in record.exchanges] == [(False, [1, 2]), (True, [9]), (True, [9])]
