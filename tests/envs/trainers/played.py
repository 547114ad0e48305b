"""Rollouts as `Clients` gives them to a trainer, the truth about their rows, and a policy for a trainer's client."""

from dataclasses import replace
from statistics import fmean

from sums import half_right
from test_destinations import made

from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED
from sandboxes.shielding import stop

GROUPS = 200


def rollouts(number):
    """A group's rollouts: of one row or several, or of none after a failure. In every other row, a tool's result
    stands between two replies and another one after them."""
    group = made(number)
    rows = [longer(row) if (number + n) % 2 else row for n, row in enumerate(group.scored.rows)]
    return [([row for row in rows if row.rollout_id == name], bool(number % 2)) for name in group.rollouts]


def longer(row):
    """A row with four more tokens: two of a result, one of a reply, one of another result."""
    more = {"tokens": [70, 71, 72, 73], "masks": [IGNORED, IGNORED, 72, IGNORED], "logprobs": [1.0, 1.0, -0.75, 1.0]}
    return replace(row, **{name: [*getattr(row, name), *values] for name, values in more.items()})


def truth(found, mean=None):
    """For each row of a group: of each token itself, whether it is trained, its logprob, its advantage: reward less the
    mean over rollouts. It ends with the last trained one."""
    mean = fmean(rows[0].score for rows, _ in found if rows) if mean is None else mean
    return [
        tuple(
            (token, own, logprob * own or 0.0, round((row.score - mean) * own, 5) or 0.0)
            for token, own, logprob in zip(row.tokens, row.sampled, row.logprobs, strict=True)
        )[: len(row.tokens) - row.sampled[::-1].index(1)]
        for rows, _ in found
        for row in rows
    ]


def as_row(tokens, mask, logprobs, advantages):
    """A row as a trainer has it, in the form of `truth`; values where nothing is trained are not counted."""
    columns = zip(tokens, mask, logprobs, advantages, strict=True)
    cells = [(int(t), int(m), float(p) * int(m) or 0.0, round(float(a) * int(m), 5) or 0.0) for t, m, p, a in columns]
    while cells and not cells[-1][1]:
        cells.pop()
    return tuple(cells)


class Policy:
    """Samples as `half_right` says, each token with logprob -0.5."""

    def __init__(self, tokenizer):
        self.template = ChatTemplate(tokenizer)

    def reply(self, ids):
        """The ids of a reply to a prompt, and their logprobs."""
        text = half_right(self.template.decode(list(ids)))
        found = [*self.template.encode(text, continues=True), self.template.close_id]
        return found, [-0.5] * len(found)


async def close(clients):
    """End the runs of a trainer's clients, as the end of its event loop does."""
    for _, runs in clients._runs.values():
        await stop(runs.end())
