"""Rollouts as `Clients` gives them to a trainer, the truth about their rows, and a policy for a trainer's client."""

import json
from dataclasses import replace
from statistics import fmean

from sums import half_right
from test_destinations import made
from werkzeug import Response

from atropos_agent.tokens.template import ChatTemplate
from atropos_agent.types import IGNORED

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
    """Samples as `half_right` says, each token with logprob -0.5. answers: each prompt and its reply."""

    def __init__(self, tokenizer):
        self.template, self.answers = ChatTemplate(tokenizer), []

    def reply(self, ids):
        """The ids of a reply to a prompt, and their logprobs."""
        text = half_right(self.template.decode(list(ids)))
        found = [*self.template.encode(text, continues=True), self.template.close_id]
        self.answers.append((list(ids), found))
        return found, [-0.5] * len(found)

    def sampled(self, row):
        """Whether a row of `as_row` trains whole replies to their own prompts, and nothing else."""
        tokens, trained = [cell[0] for cell in row], [place for place, cell in enumerate(row) if cell[1]]
        starts = [place for place in trained if place - 1 not in trained]
        ends = [place + 1 for place in trained if place + 1 not in trained]
        replies = [(tokens[:start], tokens[start:end]) for start, end in zip(starts, ends, strict=True)]
        return all(row[place][2] == -0.5 for place in trained) and all(one in self.answers for one in replies)


def serve_sglang(httpserver, policy):
    """Play a router of SGLang's, and its one server."""

    def generate(request):
        prompt = request.json["input_ids"]
        ids, logprobs = policy.reply(prompt)
        told = {"output_token_logprobs": [[value, token, None] for value, token in zip(logprobs, ids, strict=True)]}
        if request.json.get("logprob_start_len") == 0:
            told["input_token_logprobs"] = [[None, token, None] for token in prompt]
        told |= {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "finish_reason": {"type": "stop"}}
        return Response(json.dumps({"text": "", "output_ids": ids, "meta_info": told}), mimetype="application/json")

    httpserver.expect_request("/generate").respond_with_handler(generate)
    httpserver.expect_request("/health").respond_with_json({})
    httpserver.expect_request("/workers").respond_with_json({"workers": []})


async def close(clients):
    """End the runs of a trainer's clients, as the end of its event loop does."""
    for _, runs in clients._runs.values():
        await runs.close()
