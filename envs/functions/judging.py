"""The worth of a function's value, and a score's result for a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from atropos_agent.types import AgentResult
from envs.functions.calling import await_value
from envs.rewards import number_of
from envs.types import MOST_REWARD, Failure, InfraError, Task, Verdict
from sandboxes.base import Sandbox
from sandboxes.naming import did_you_mean
from sandboxes.signatures import signature_of

JUDGING = ("task", "answer", "result")
"""Names of parameters available to a score."""


async def judge_reply(
    score: Callable[..., Any], task: Task, result: AgentResult, limit_s: float, sandbox: Sandbox | None = None
) -> Verdict:
    """Return a score's verdict on a reply. limit_s: its seconds. Raises its exceptions, FunctionTimeoutError, and
    InfraError for an invalid reward."""
    known = {"task": task, "answer": result.final_response, "result": result, "sandbox": sandbox}
    taken = signature_of(score).parameters
    value = await await_value(score, {name: given for name, given in known.items() if name in taken}, limit_s)
    return verdict_of(getattr(score, "__name__", "the score"), value)


def parameters_of(function: Callable[..., Any], known: Sequence[str], what: str) -> tuple[str, ...]:
    """Return the names of a function's arguments, among the known ones. what: its name in messages.
    Raises TypeError if it has other required parameters."""
    if not callable(function) or isinstance(function, type):
        raise TypeError(f"{what} must be a function, not {function!r}")
    name = getattr(function, "__name__", repr(function))
    found = []
    for parameter in signature_of(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"{name}: {parameter} can't be given by name; name what it needs of {', '.join(known)}")
        if parameter.name in known:
            found.append(parameter.name)
        elif parameter.default is parameter.empty:
            raise TypeError(
                f"{name}: nothing is known as {parameter.name!r}{did_you_mean(parameter.name, known)}; "
                f"{what} is given {', '.join(known)}; or give the parameter a default"
            )
    return tuple(found)


def check_score(score: Callable[..., Any], *, sandbox: bool = False) -> None:
    """Check that a score can be called. Raises TypeError."""
    parameters_of(score, (*JUDGING, "sandbox") if sandbox else JUDGING, "the function that scores")


def verdict_of(name: str, value: object) -> Verdict:
    """Return the verdict of a function's value. Raises InfraError for an invalid reward."""
    if isinstance(value, Verdict):
        return value
    if value is None:
        what = f"{name} returned nothing: there is no reward; return a number or a Verdict"
        raise InfraError(Failure.VERIFIER, what, permanent=True)
    try:
        number = number_of(value)
    except (TypeError, ValueError, OverflowError) as error:
        what = f"{name} returned a {type(value).__name__}; return a number or a Verdict"
        raise InfraError(Failure.VERIFIER, what) from error
    if not abs(number) <= MOST_REWARD:
        what = f"{name} returned {number}; return a number of at most {MOST_REWARD:g}"
        raise InfraError(Failure.VERIFIER, what, permanent=True)
    return Verdict(number, f"{name} returned {value!r}"[:500])
