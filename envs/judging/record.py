"""The evidence of the reference's tests, kept so each later judgement asks for the same.

A record has an entry for each step of the task; most tasks have one. `tests`: for each test that passed in all repeats,
the sites that reported the expected value alone each time (file, line, column). `odd`: sites with another
equal value too, which are no evidence. `replaced`: replaced things that tests rely on. `unverified`: tests that compare
with nothing among decoys. `step`: the entry's step, in a task of several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Evidence = Mapping[str, Any]
REFERENCE = json.dumps({"reference": True})
"""In place of a record, while the reference is judged: tests that its suite itself skips or leaves out are not
demanded, and neither sites with another equal value nor replaced things speak against it."""


def merged(repeats: Sequence[Sequence[Evidence]]) -> str:
    """Return the record of the repeats of a reference, each with one entry a step; "" if they can't be compared."""
    if not repeats or len({len(calls) for calls in repeats}) > 1 or not any(any(call) for call in repeats[0]):
        return ""
    return json.dumps([_merged(calls) for calls in zip(*repeats, strict=True)], separators=(",", ":"))


def unverified(record: str) -> tuple[str, ...]:
    """Return the tests of a record that compare with nothing among decoys."""
    return tuple(test for call in json.loads(record or "[]") for test in call.get("unverified", ()))


def named(record: str) -> Sequence[bool]:
    """Return of each entry of a record whether it names tests that others must have."""
    calls = json.loads(record or "[]")
    return [bool(call.get("tests")) for call in calls] if isinstance(calls, list) else []


def of_step(record: str, name: str) -> str:
    """Return the part of a record for a step's judgements."""
    if record == REFERENCE:
        return record
    return json.dumps([call for call in json.loads(record or "[]") if call.get("step") == name], separators=(",", ":"))


def _merged(calls: Sequence[Evidence]) -> Evidence:
    seen = [{test: set(map(tuple, sites)) for test, sites in call.get("tests", {}).items()} for call in calls]
    common = {test for test in seen[0] if all(test in each for each in seen)}
    return {
        **({"step": calls[0]["step"]} if "step" in calls[0] else {}),
        "tests": {test: sorted(set.intersection(*(each[test] for each in seen))) for test in sorted(common)},
        "odd": sorted({tuple(site) for call in calls for site in call.get("odd", ())}),
        "replaced": sorted({name for call in calls for name in call.get("replaced", ())}),
        "unverified": sorted(common.intersection(*(call.get("unverified", ()) for call in calls))),
    }
