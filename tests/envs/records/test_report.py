"""The page of rollouts: complete, closed to what models write, and bounded in size."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from samples import HOSTILE, decode, rollout, row, task

from atropos_agent.types import SequenceData
from envs.records.atif import to_atif
from envs.records.detail import MAX_TEXT
from envs.records.read import SavedRollout, from_atif
from envs.records.report import write_report
from envs.records.token_view import token_view
from envs.types import Rollout

VOID = {"meta", "input"}


class Page(HTMLParser):
    """A page taken apart: its elements with their attributes, and the text of each element's inside."""

    def __init__(self, path: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.source = path.read_text("utf-8")
        self.feed(self.source)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [
            found
            for name, found in self.elements
            if name == tag and all(found.get(key.rstrip("_")) == value for key, value in attributes.items())
        ]

    @property
    def text(self) -> str:
        return "".join(text for tag, text in self.texts if tag not in ("style", "script"))


def saved(original: Rollout) -> SavedRollout:
    return from_atif(to_atif(original))


def page(tmp_path: Path, *rollouts: Rollout, **options: object) -> Page:
    path = tmp_path / "page" / "report.html"
    write_report(map(saved, rollouts), path, **{"decode": decode, **options})  # type: ignore[arg-type]  # of mixed types
    return Page(path)


def tokens_of(shown: Page) -> list[tuple[str, str]]:
    """Class and text of every token box of the page."""
    boxes = re.findall(r'<i class="([^"]*)" title="\d[^"]*">(.*?)</i>', shown.source, re.DOTALL)
    return [(kind, text) for kind, text in boxes]


def test_a_rollout_is_shown_from_instruction_to_verdict(tmp_path: Path) -> None:
    shown = page(tmp_path, rollout(), title="A run", summary={"engine": "smollm2"})
    for part in (
        "A run",
        "smollm2",
        "fix-the-sum",
        "bug fixes",
        "answered",
        "You fix code.",
        "Fix sum.py.",
        "I look.",
        "terminal",
        "cat sum.py",
        "def sum(a, b): return a - b",
        "Error: unknown tool 'termnal'",
        "One call was not valid JSON.",
        "It is fixed.",
        "2 of 2 tests passed",
        "test_zero",
        "missing",
        "+++ b/sum.py",
        "1 tool error, 1 malformed reply",
    ):
        assert part in shown.text
    assert len(shown.all("tr", class_=None)) == 2
    assert len(shown.all("details", class_="rollout")) == 1


def test_thoughts_and_calls_are_not_repeated_in_the_prose(tmp_path: Path) -> None:
    reply = '<think>look</think>\nI look.\n<tool_call>{"name": "terminal", "arguments": {}}</tool_call>'
    shown = page(tmp_path, rollout(reply=reply))
    assert "<pre>I look.</pre>" in shown.source


def test_every_token_is_shown_once_and_in_order_with_its_mask(tmp_path: Path) -> None:
    original = rollout()
    (data,) = original.result.segments
    boxes = tokens_of(page(tmp_path, original))
    assert len(boxes) == len(data.tokens)
    assert [kind.startswith("c") for kind, _ in boxes] == [mask == -100 for mask in data.masked_tokens]
    assert "".join(text for _, text in boxes).count("&lt;|im_end|&gt;") == 5


def test_a_doubled_end_of_turn_is_pointed_out(tmp_path: Path) -> None:
    good = row(("user\nGo.", False), ("Done.", True))
    doubled = SequenceData(good.full_text, (*good.tokens, 1), (*good.masked_tokens, -100), (*good.logprobs, 1.0))
    assert token_view(good, decode, limit=100).doubled == []
    assert token_view(doubled, decode, limit=100).doubled == [len(good.tokens)]
    original = rollout()
    bad = replace(original, result=replace(original.result, segments=(doubled,)))
    assert "no doubled control token" in page(tmp_path, original).text
    shown = page(tmp_path, bad)
    assert "1 doubled control token, at" in shown.text
    assert sum(kind.endswith(" d") for kind, _ in tokens_of(shown)) == 1


def test_without_a_decoder_tokens_show_their_ids(tmp_path: Path) -> None:
    (data,) = rollout().result.segments
    boxes = tokens_of(page(tmp_path, rollout(), decode=None))
    assert [text for _, text in boxes] == [str(token) for token in data.tokens]


def noted(original: Rollout, name: str, value: str) -> Rollout:
    return replace(original, result=replace(original.result, metadata={name: value}))


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_that_a_model_or_program_wrote_becomes_markup(text: str, tmp_path: Path) -> None:
    original = rollout(
        text,
        of=task(text, tags=(text,), band=text),
        reply=text,
        command=text,
        output=text,
        explanation=text,
    )
    shown = page(tmp_path, noted(original, text, text), title=text, summary={text: text})
    plain = page(tmp_path / "plain", noted(rollout(), "note", "text"), summary={"note": "text"})
    # Token boxes differ in number; every other element must be as in a harmless page.
    elements = [tag for tag, _ in shown.elements if tag != "i"]
    harmless = [tag for tag, _ in plain.elements if tag != "i"]
    thinking_and_calls = {"details", "summary", "pre"}
    assert [tag for tag in elements if tag not in thinking_and_calls] == [
        tag for tag in harmless if tag not in thinking_and_calls
    ]
    assert len(shown.all("script")) == 1
    assert not [name for _, attributes in shown.elements for name in attributes if name.startswith("on")]
    assert shown.text.count(text) >= 8


def test_the_page_reaches_nothing_outside_and_allows_no_script_but_its_own(tmp_path: Path) -> None:
    shown = page(tmp_path, rollout())
    links = [value for _, attributes in shown.elements for name, value in attributes.items() if name in ("src", "href")]
    assert all(str(link).startswith("#") for link in links)
    assert "url(" not in shown.source
    assert "@import" not in shown.source
    (policy,) = [str(m["content"]) for m in shown.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        inside = "".join(text for where, text in shown.texts if where == tag)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_long_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    output = "head" + "x" * (3 * MAX_TEXT) + "tail"
    original = rollout(output=output)
    short = replace(original, result=replace(original.result, segments=()))
    shown = page(tmp_path, short)
    assert f"{len(output) - MAX_TEXT:,} characters are not shown" in shown.text
    assert "head" in shown.text
    assert "tail" in shown.text


def test_the_page_is_bounded_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    length = len(rollout().result.segments[0].tokens)
    rollouts = [rollout(f"r-{number}") for number in range(12)]
    shown = page(tmp_path, *rollouts, max_details=5, max_tokens=2 * length + 10)
    assert len(shown.all("details", class_="rollout")) == 5
    assert len(shown.all("tr", class_=None)) == 13
    assert len(tokens_of(shown)) == 2 * length + 10
    assert "7 rollouts beyond the page's limit" in shown.text
    assert "2 rollouts without a token view" in shown.text
    assert f"{length - 10} more tokens not shown" in shown.text


def test_the_page_grows_by_little_with_every_rollout_beyond_the_limit(tmp_path: Path) -> None:
    few = page(tmp_path, *[rollout()] * 10, max_details=5)
    many = page(tmp_path, *[rollout()] * 110, max_details=5)
    assert (len(many.source) - len(few.source)) / 100 < 1500


def test_in_a_narrow_window_names_of_tasks_are_broken_and_bands_are_not(tmp_path: Path) -> None:
    shown = page(tmp_path, rollout())
    headers = [text for tag, text in shown.texts if tag == "th"]
    rules = re.findall(r"td:nth-child\((\d)\)[^{]*{ (overflow-wrap: break-word|white-space: nowrap)", shown.source)
    assert {headers[int(column) - 1] for column, _ in rules} == {"band", "ended by"}
    assert "td { overflow-wrap: anywhere; }" in shown.source


def test_no_rollouts_make_a_page_too(tmp_path: Path) -> None:
    assert len(page(tmp_path).all("tr")) == 1


def test_a_rollout_without_segments_or_messages_is_shown(tmp_path: Path) -> None:
    empty = replace(rollout().result, steps=(), messages=(), segments=(), stop_reason=None, error="engine: gone")
    shown = page(tmp_path, replace(rollout(), result=empty))
    assert "error: engine: gone" in shown.text


def test_a_page_is_replaced_at_once(tmp_path: Path) -> None:
    page(tmp_path, rollout())
    shown = page(tmp_path, rollout(), title="Second")
    assert "Second" in shown.text
    assert [file.name for file in (tmp_path / "page").iterdir()] == ["report.html"]


def test_messages_between_replies_stand_before_the_reply_to_them(tmp_path: Path) -> None:
    made = rollout()
    first, last = made.result.steps
    last = replace(last, said=({"role": "user", "content": "Are you <sure>?"},))
    made = replace(made, result=replace(made.result, steps=(first, last)))
    text = page(tmp_path, made).text
    assert text.index("I look.") < text.index("Are you <sure>?") < text.rindex("It is fixed.")
