"""A teacher over HTTP whose logprobs are written down: vLLM's protocol, no model."""

import json

from scripted_engine import ScriptedEngine

LOGPROB = -0.5
"""Of each token but those of `likes`."""


class TeacherEngine(ScriptedEngine):
    """Scores prompts. likes: logprobs of single tokens. known: whether it scores at all."""

    likes: dict[int, float]
    known = True

    def __init__(self, tokenizer, **options):
        super().__init__(lambda prompt: ".", tokenizer, **options)
        self.likes = {}
        self.scored: list[list[int]] = []

    async def _completions(self, request):
        response = await super()._completions(request)
        asked, body = await request.json(), json.loads(response.body)
        if response.status_code != 200 or asked.get("prompt_logprobs") is None or not self.known:
            return response
        ids = body["choices"][0]["prompt_token_ids"]
        self.scored.append(ids)
        likeliest = {i: {"logprob": -0.125 * (i + 1), "rank": i + 1} for i in range(asked["prompt_logprobs"])}
        own = [{**likeliest, i: {"logprob": self.likes.get(i, LOGPROB), "rank": None}} for i in ids[1:]]
        body["choices"][0]["prompt_logprobs"] = [None, *own]
        return type(response)(body)
