"""The evidence of the reference's tests, kept so each later judgement asks for the same.

A record has an entry for each step of the task; most tasks have one. `tests`: for each test that passed in all repeats,
the sites that told each time of the expected value alone, as indexes of `sites` (file, line, column, number there).
`sets`: for each of these, the expected values that it told of, by their order there. `odd`: sites with
another equal value too, which are no evidence. `replaced`: what it replaced of the things that tests rely
on. `step`: the entry's step, in a task of several.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Evidence = Mapping[str, Any]
REFERENCE = json.dumps({"reference": True})
"""In place of a record, while the reference is judged: tests that its suite itself skips or leaves out are not
demanded."""


def merged(repeats: Sequence[Sequence[Evidence]]) -> str:
    """Return the record of the repeats of a reference, each with one entry a step; "" if they can't be compared."""
    if not repeats or len({len(calls) for calls in repeats}) > 1 or not any(any(call) for call in repeats[0]):
        return ""
    return json.dumps([_merged(calls) for calls in zip(*repeats, strict=True)], separators=(",", ":"))


def unverified(record: str) -> tuple[str, ...]:
    """Return the tests of a record that compare with nothing among decoys."""
    return tuple(test for call in json.loads(record or "[]") for test in call.get("unverified", ()))


def has_odd(evidence: Sequence[Evidence]) -> bool:
    """Tell whether a site was equal to more than the expected value, or to something else, or if something that tests
    rely on was replaced."""
    return any(call.get("odd") or call.get("replaced") for call in evidence)


def only_odd(evidence: Sequence[Evidence]) -> str:
    """Return a record with nothing but what is no evidence, since the reference did it."""
    return json.dumps([{name: call.get(name, []) for name in ("odd", "replaced")} | _step(call) for call in evidence])


def of_step(record: str, name: str) -> str:
    """Return the part of a record for a step's judgements."""
    if record == REFERENCE:
        return record
    return json.dumps([call for call in json.loads(record or "[]") if call.get("step") == name], separators=(",", ":"))


def _step(call: Evidence) -> Evidence:
    return {"step": call["step"]} if "step" in call else {}


def _merged(calls: Sequence[Evidence]) -> Evidence:
    told = [
        {test: {tuple(call["sites"][i]) for i in sites} for test, sites in call.get("tests", {}).items()}
        for call in calls
    ]
    common = {
        test: set.intersection(*(each[test] for each in told)) for test in told[0] if all(test in each for each in told)
    }
    sites = sorted(set().union(*common.values()))
    sets = [
        dict(zip(map(tuple, call.get("sites", ())), map(set, call.get("sets", ())), strict=False))
        for call in calls
        if call
    ]
    place = {site: i for i, site in enumerate(sites)}
    return {
        **_step(calls[0]),
        "tests": {test: sorted(place[site] for site in found) for test, found in sorted(common.items())},
        "sites": sites,
        "sets": [sorted(set.intersection(*(each.get(site, set()) for each in sets))) for site in sites],
        "replaced": sorted({name for call in calls for name in call.get("replaced", ())}),
        "odd": sorted({tuple(site) for call in calls for site in call.get("odd", ())}),
        "unverified": sorted(set(common).intersection(*(call.get("unverified", ()) for call in calls))),
    }
