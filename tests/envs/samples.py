"""Rollouts made by hand, shared by the tests of saving, reporting and consuming them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from atropos_agent.formats.hermes import Hermes
from atropos_agent.types import (
    IGNORED,
    NO_LOGPROB,
    AgentResult,
    AgentStep,
    Conditions,
    Counts,
    SequenceData,
    StopReason,
)
from envs.types import Hidden, Reward, Rollout, Seat, Task, TestStatus, Verdict
from tools.base import ToolCall, ToolResult

VOCABULARY = ["<|im_start|>", "<|im_end|>", "\n"]
"""Ids 0 to 2; every further id is the character with the code point `id`."""

HOSTILE = [
    "<script>alert(1)</script>",
    "</pre></details></script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title><svg/onload=alert(1)>",
    "{{ 7 * 7 }}{% include 'x' %}",
    "<!-- --><![CDATA[ x ]]>",
    "&lt;script&gt;",
    "javascript:alert(1)",
]
"""Texts that a page must show and never follow."""


def decode(token: int) -> str:
    return VOCABULARY[token] if token < len(VOCABULARY) else chr(token)


def row(*parts: tuple[str, bool], end: bool = True) -> SequenceData:
    """A row of chat turns: each part is a turn's text and whether it was sampled."""
    tokens: list[int] = []
    masked: list[int] = []
    logprobs: list[float] = []
    for text, sampled in parts:
        turn = [*(ord(character) for character in text), 1]
        tokens += [0, *turn, 2]
        masked += [IGNORED, *(turn if sampled else [IGNORED] * len(turn)), IGNORED]
        odds = [-0.01 - (place % 7) ** 2 / 9 for place in range(len(turn))]
        logprobs += [NO_LOGPROB, *(odds if sampled else [NO_LOGPROB] * len(turn)), NO_LOGPROB]
    return SequenceData("".join(map(decode, tokens)), tuple(tokens), tuple(masked), tuple(logprobs))


def task(name: str = "fix-the-sum", *, tags: Sequence[str] = ("python",), band: str = "bug fixes") -> Task:
    return Task(
        id=name,
        instruction="Fix sum.py.",
        hidden=Hidden(tests=Path("/hidden/tests"), solution=Path("/hidden/solution"), test_env={"KEY": "hidden-env"}),
        tags=tags,
        metadata={"band": band, "patch": "the-reference-patch"},
    )


def rollout(
    name: str = "r-1",
    *,
    of: Task | None = None,
    reward: float = 1.0,
    reply: str = "<think>look</think>\nI look.",
    command: str = "cat sum.py",
    output: str = "def sum(a, b): return a - b\n",
    explanation: str = "2 of 2 tests passed",
    stop: StopReason | None = StopReason.ANSWERED,
    seat: Seat = Seat(7, 1, step=3),  # noqa: B008 - frozen
) -> Rollout:
    """Two replies, the first with a tool call, an erroneous one and a correction."""
    of = of or task()
    call = ToolCall("terminal", {"command": command}, "call-1")
    second = ToolCall("termnal", {}, "")
    answer = "It is fixed."
    data = row(
        ("system\nYou fix code.", False),
        ("user\nFix sum.py.", False),
        (reply, True),
        (f"user\n<tool_response>{output}</tool_response>", False),
        (answer, True),
    )
    first_start = sum(len(text) + 3 for text in ("system\nYou fix code.", "user\nFix sum.py.")) + 1
    second_start = len(data.tokens) - len(answer) - 2
    return Rollout(
        id=name,
        task=of,
        result=AgentResult(
            success=True,
            final_response=answer,
            steps=(
                AgentStep(
                    index=0,
                    response=reply,
                    thinking="look",
                    content=Hermes().parse(reply).content,
                    calls=(call, second),
                    results=(
                        ToolResult(output, call=call, metadata={"exit_code": 0}),
                        ToolResult("Error: unknown tool 'termnal'", is_error=True, call=second),
                    ),
                    correction="One call was not valid JSON.",
                    start=first_start,
                    prompt_tokens=first_start,
                    completion_tokens=len(reply) + 1,
                    engine_s=0.5,
                    tools_s=0.125,
                ),
                AgentStep(
                    index=1,
                    response=answer,
                    content=answer,
                    start=second_start,
                    prompt_tokens=second_start,
                    completion_tokens=len(answer) + 1,
                    engine_s=0.25,
                    policy_version=3,
                ),
            ),
            stop_reason=stop,
            segments=(data,),
            messages=(
                {"role": "system", "content": "You fix code."},
                {"role": "user", "content": of.instruction},
                {"role": "assistant", "content": reply},
                {"role": "user", "content": f"<tool_response>{output}</tool_response>"},
                {"role": "assistant", "content": answer},
            ),
            counts=Counts(tool_calls=2, tool_errors=1, malformed_calls=1),
            conditions=Conditions("smollm2", ({"type": "function"},), {"temperature": 1.0, "stop": []}),
        ),
        verdict=Verdict(
            reward,
            explanation,
            tests={"test_adds": TestStatus.PASSED, "test_zero": TestStatus.MISSING},
            metrics={"share": 0.5},
            output="2 passed\n",
            patch="--- a/sum.py\n+++ b/sum.py\n",
        ),
        reward=Reward(reward),
        seat=seat,
        timings_s={"sandbox": 0.75, "agent": 2.0, "judge": 1.5},
        work=({"archive": "", "names": "{}", "problem": None, "elsewhere": []},),
    )


def renamed(original: Rollout, name: str) -> Rollout:
    return replace(original, id=name)


def group(rewards: Sequence[float] = (1.0, 0.0, 0.0, 1.0), *, name: str = "g") -> dict[str, Any]:
    """A scored group as the trainer API hands it out, one row a rollout, with advantages."""
    mean = math.fsum(rewards) / len(rewards)
    rows = [row(("user\nGo.", False), ("Done.", True)) for _ in rewards]
    return {
        "tokens": [list(data.tokens) for data in rows],
        "masks": [list(data.masked_tokens) for data in rows],
        "scores": list(rewards),
        "inference_logprobs": [list(data.logprobs) for data in rows],
        "advantages": [[reward - mean] * len(data.tokens) for reward, data in zip(rewards, rows, strict=True)],
        "generation_params": {"rollout_ids": [f"{name}-{place}" for place in range(len(rewards))]},
    }
