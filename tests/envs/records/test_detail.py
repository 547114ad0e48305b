"""A rollout in full: its time, its patch, its texts."""

import re
from dataclasses import replace

import pytest
from samples import rollout

from atropos_agent.types import StopReason
from envs.records.atif import to_atif
from envs.records.detail import MAX_PATCH_LINES, MAX_TEXT, agent_of, detail_of, ended, patch_lines, shown, unruled
from envs.records.read import from_atif

PATCH = """\
diff --git a/sum.py b/sum.py
--- a/sum.py
+++ b/sum.py
@@ -3,3 +3,3 @@ def f():
 same
--- gone
+++ come
\\ No newline at end of file
"""


def saved(one):
    return from_atif(to_atif(one))


def test_the_time_of_a_rollout_is_all_there_in_its_order():
    one = replace(rollout(), timings_s={"open": 1.0, "agent": 2.0, "verifier": 0.5, "total": 4.0})
    detail = detail_of(saved(one))
    assert [span.kind for span in detail.spans] == ["open", "engine", "tools", "engine", "rest", "verifier", "rest"]
    ends = [span.start + span.seconds for span in detail.spans]
    assert [span.start for span in detail.spans] == pytest.approx([0.0, *ends[:-1]])
    assert detail.seconds == pytest.approx(4.0)


def test_what_became_of_its_conversations_is_told_in_words():
    told = {
        "branches": {"main": 5, "summary": 2},
        "untrained_tokens": {"unused summary": 30},
        "compaction": {"count": 1, "tokens_saved": 1234, "summaries": [2, 4]},
    }
    one = rollout()
    one = replace(one, result=replace(one.result, metadata={"conversations": told}))
    facts = dict(detail_of(saved(one)).facts)
    assert facts["turns by kind"] == "5 main, 2 summary"
    assert facts["made shorter"] == "1 time, by about 1,234 tokens"
    assert facts["sampled, not trained: unused summary"] == "30 tokens"
    assert "conversations" not in facts


def in_rows(one, *rows):
    """A rollout whose turns are in these rows."""
    (data,) = one.result.segments
    steps = [replace(one.result.steps[0], index=turn, segment=row) for turn, row in enumerate(rows)]
    segments = [replace(data, segment=row) for row in sorted({*rows} - {None})]
    return replace(one, result=replace(one.result, segments=tuple(segments), steps=tuple(steps)))


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        ((0, 0), ["", ""]),
        ((0, 0, 1, 0), ["row 1 of 2", "", "row 2 of 2", "back in row 1 of 2"]),
        ((0, 2, 2, 5), ["row 1 of 3", "row 2 of 3", "", "row 3 of 3"]),
    ],
)
def test_a_turn_in_another_row_than_the_one_before_says_so(rows, parts):
    assert [turn.part for turn in detail_of(saved(in_rows(rollout(), *rows))).turns] == parts


def test_a_turn_in_no_row_says_so():
    one = rollout()
    steps = (one.result.steps[0], replace(one.result.steps[1], segment=1))
    one = replace(one, result=replace(one.result, steps=steps))
    assert [turn.part for turn in detail_of(saved(one)).turns] == ["", "a part that is in no row"]


def test_the_agent_is_the_one_of_the_mix_or_anothers_own():
    one = rollout()
    other = replace(one, result=replace(one.result, metadata={"agent": {"name": "codex", "package": "1"}}))
    assert agent_of(saved(one)) == ""
    assert agent_of(saved(other)) == "codex"
    assert agent_of(saved(replace(other, seat=replace(one.seat, agent="codex:70")))) == "codex:70"


def test_the_lines_of_a_patch_have_their_kind_and_their_numbers():
    found = [(line.kind, line.old, line.new) for line in patch_lines(PATCH)]
    assert found == [
        ("file", None, None), ("file", None, None), ("file", None, None), ("hunk", None, None),
        ("same", 3, 3), ("del", 4, None), ("add", None, 4), ("same", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "no patch", "@@", "@@ -x,y +99999999999 @@\n+a", "@@ -1 +1 @@\n" + "+a\n" * 9000])
def test_whatever_a_patch_is_it_is_shown_and_bounded(text):
    assert len(patch_lines(text)) <= MAX_PATCH_LINES + 1


def test_patch_and_verifiers_output_are_those_of_the_verdict():
    one = rollout()
    detail = detail_of(saved(replace(one, verdict=replace(one.verdict, patch=PATCH, output="printed"))))
    assert [line.text for line in detail.patch] == PATCH.splitlines()
    assert detail.output == "printed"


def test_a_conversation_that_was_compacted_began_with_its_task():
    one = rollout()
    system, task = {"role": "system", "content": "S"}, {"role": "user", "content": "Do it."}
    summary, reply = {"role": "user", "content": "Until now: …"}, {"role": "assistant", "content": "done"}
    short = replace(one, result=replace(one.result, messages=(system, task, summary, reply)))
    assert len(one.result.steps) > 1, "more were sampled than the conversation still has"
    assert [message["content"] for message in detail_of(short).opening] == ["S", "Do it."]


def test_the_lines_that_programs_draw_are_left_out():
    assert unruled("Reward 1.\n" + "-" * 70 + "\nRan 9 tests\n====") == "Reward 1.\nRan 9 tests\n===="


def test_long_text_is_cut_in_its_middle_and_control_characters_are_seen():
    assert shown("\x1b[0m") == "␛[0m"
    assert len(shown("x" * 10 * MAX_TEXT)) < MAX_TEXT + 100


def test_what_is_no_text_is_shown_as_one():
    assert [shown(value) for value in (1.5, None, ["x"])] == ["1.5", "None", "['x']"]


def test_every_end_of_a_rollout_is_said_in_words():
    assert [ended(stop) for stop in StopReason if not re.fullmatch("[a-z ]+", ended(stop))] == []
    assert ended(StopReason.MAX_STEPS) == "out of turns"
