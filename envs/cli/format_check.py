"""`doctor`'s check of a tool format: its name, the reason for it, the template's own part, and the ids of a call."""

from __future__ import annotations

from collections.abc import Sequence

from atropos_agent.fitted import FittedFormat
from atropos_agent.formats import FORMATS
from atropos_agent.tokens.calls import CallsKind
from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import Message, Reply
from envs.cli.checks import Check, Status
from tools import ToolCall, ToolResult

SHOWN_TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look at something.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
    },
}


def examine_format(fitted: FittedFormat) -> list[Check]:
    """Check a chat template's effect on a tool format."""
    kind = type(fitted.format)
    name = next((name for name, known in FORMATS.items() if known is kind), f"{kind.__module__}:{kind.__qualname__}")
    does, gives_up = _template_abilities(fitted)
    data = {
        "name": name,
        "why": fitted.why,
        "tools_by_template": fitted.shows_tools,
        "calls_by_template": fitted.shape is not None,
        "given_up": gives_up,
        "unread": fitted.unread,
    }
    remarks = [fitted.why, *([] if fitted.warning is None else [fitted.warning]), *does, *gives_up]
    status = Status.OK if fitted.warning is None else Status.NOTE
    checks = [Check("tool format", status, f"{name}: {'; '.join(remarks)}", data)]
    if fitted.template is not None:
        pieces = _call_pieces(fitted, fitted.template)
        shown = " ".join(repr(piece)[1:-1] for _, piece in pieces)
        checks.append(Check("a call", Status.OK, shown, {"tokens": pieces}))
    return checks


def _template_abilities(fitted: FittedFormat) -> tuple[list[str], list[str]]:
    """Return the template's own abilities, and its nearest substitutes for the missing ones."""
    template, shape = fitted.template, fitted.shape
    does = ["the template shows the tools" if fitted.shows_tools else "the tools stand in the system prompt"]
    if template is None or shape is None:
        role = "tool" if fitted.results_after_text else fitted.role
        return [*does, f"calls are text; results are messages of role {role}"], []
    does.append("the template writes calls and results")
    words = "are given to it as thinking" if shape.thinking is not None else "make the reply text"
    others = [
        ("several calls in one reply stay its text", not template.takes(CallsKind(shape, several=True))),
        (f"words before a call {words}", not template.takes(CallsKind(shape, content=True))),
        ("it drops the thinking of replies with calls", shape.thinking is None),
        (f"results after a reply that stays text are messages of role {fitted.role}", not fitted.results_after_text),
        ("system messages in mid-conversation are written as the user's", template.moves_late_system),
    ]
    return does, [text for text, true in others if true]


def _call_pieces(fitted: FittedFormat, template: ChatTemplate) -> Sequence[tuple[int, str]]:
    """Return the ids, and the text of each, of a call and its result after the prompt, up to the next reply."""
    bound = fitted.with_tools([SHOWN_TOOL])
    call = ToolCall("look", {"at": "it"}, bound.format.call_id(0, "look"))
    written = bound.format.turn(Reply(None, "", [call], ()))
    reply = bound.format.parse(written)
    called = bound.message(reply)
    text: Message = {"role": "assistant", "content": template.header.content_of(written)}
    question: list[Message] = [{"role": "user", "content": "Look."}]
    results = bound.results([ToolResult("seen", call=reply.calls[0])], (), called=called is not None)
    tools = bound.shown([SHOWN_TOOL])
    prompt = template.prompt(question, tools)
    whole = template.prompt([*question, text if called is None else called[0], *results], tools)
    start = next((n for n, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))
    return [(i, template.decode([i])) for i in whole[start:]]
