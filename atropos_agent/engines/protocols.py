"""Talk to servers with other protocols than vLLM's `/v1/completions`, with the same behaviour.

`--openai.server_type` chooses the protocol: see `SERVERS`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from atroposlib.envs.server_handling.server_baseline import APIServer, APIServerConfig, ReasoningConfig

from atropos_agent.engines.anthropic import AnthropicServer
from atropos_agent.engines.chat import UNNAMED, ChatServer
from atropos_agent.engines.completions import Answer, CompletionsServer, answer_of
from atropos_agent.engines.errors import refusal, shown
from atropos_agent.engines.replies import check_ended
from atropos_agent.engines.responses import ResponsesServer
from atropos_agent.tokens.record import first_difference
from atropos_agent.types import EngineError, TokenMismatch


class SGLangServer(CompletionsServer):
    """SGLang's native `/generate` by token ids. Source: sglang/srt/managers/io_struct.py.

    An answer counts the prompt's ids but does not repeat them; the first one does, on request.
    """

    path = "/generate"

    _prompt_seen = False

    def request(self, prompt: list[int], options: dict[str, Any]) -> dict[str, Any]:
        sampling = {**options, "skip_special_tokens": False}
        sampling["max_new_tokens"] = sampling.pop("max_tokens", None)
        return {
            "input_ids": prompt,
            "sampling_params": sampling,
            "return_logprob": True,
            # From 0 on, the prompt's ids come back too, but none of it is taken from the cache.
            "logprob_start_len": -1 if self._prompt_seen else 0,
        }

    def read(self, body: Any, prompt: list[int]) -> Answer:
        results = body if isinstance(body, list) else [body]
        ids, logprobs, reasons, versions = [], [], [], []
        for result in results:
            meta = result["meta_info"]
            self._check_ended(meta)
            if meta.get("output_token_logprobs") is None:
                raise TokenMismatch(f"{self.label} returned no logprobs; training needs one that does")
            self._check_prompt(meta, prompt)
            sampled = [token for _, token, *_ in meta["output_token_logprobs"]]
            named = result.get("output_ids")
            if named is not None and list(named) != sampled:
                raise TokenMismatch(
                    f"{self.label} returned logprobs of other ids than it sampled: {first_difference(sampled, named)}"
                )
            ids.append(sampled)
            logprobs.append([logprob for logprob, *_ in meta["output_token_logprobs"]])
            reasons.append(meta["finish_reason"]["type"])
            versions.append(meta.get("weight_version"))
        return answer_of(prompt, ids, logprobs, reasons, versions)

    def count_sampled(self, body: Any) -> int:
        results = body if isinstance(body, list) else [body]
        metas = [result["meta_info"] for result in results]
        return sum(meta.get("completion_tokens") or len(meta.get("output_token_logprobs") or ()) for meta in metas)

    def _check_ended(self, meta: Mapping[str, Any]) -> None:
        """Check the finish reason: it may report an error as HTTP would. Raises AgentError."""
        reason = meta["finish_reason"]
        if isinstance(reason, dict) and reason.get("type") == "abort" and reason.get("message"):
            status = reason.get("status_code")
            raise refusal(self.label, int(str(status)) if str(status).isdecimal() else 503, str(reason["message"]))
        check_ended(reason)

    def _check_prompt(self, meta: Mapping[str, Any], prompt: list[int]) -> None:
        if meta.get("prompt_tokens") != len(prompt):
            raise TokenMismatch(
                f"{self.label} was given {shown(meta.get('prompt_tokens'))} ids where {len(prompt)} were sent, "
                "so it encodes prompts again"
            )
        if self._prompt_seen:
            return
        seen = [token for _, token, *_ in meta.get("input_token_logprobs") or ()]
        if seen != prompt:
            raise TokenMismatch(
                f"{self.label} was given another prompt than was sent: {first_difference(seen, prompt)}"
            )
        self._prompt_seen = True

    async def prompt_ids_of(self, text: str) -> list[int]:
        return [token for token, _ in await self._score_prompt({"text": text})]

    async def score(self, ids: list[int]) -> list[float]:
        scored = await self._score_prompt({"input_ids": ids})
        if [token for token, _ in scored] != ids:
            raise EngineError(f"{self.label} can't score a prompt")
        return [logprob for _, logprob in scored[1:]]

    async def _score_prompt(self, prompt: dict[str, Any]) -> list[tuple[int, float]]:
        """Return a prompt's ids and their logprobs; the first has none, so it has 0."""
        sampling = {"max_new_tokens": 1, "temperature": 1.0}
        body = {**prompt, "sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}

        def read(answer: Any) -> list[tuple[int, float]]:
            rows = answer["meta_info"].get("input_token_logprobs") or ()
            return [(int(token), float(logprob) if place else 0.0) for place, (logprob, token, *_) in enumerate(rows)]

        return await self.query(self.path, body, read, "score a prompt")


class GenerateServer(CompletionsServer):
    """atroposlib's own `/generate`. Source: example_trainer/vllm_api_server.py of Atropos.

    It lists no models: `--openai.model_name` names its model.
    """

    path = "/generate"

    async def connect(self) -> None:
        await self.probe("/health", "Atropos' example_trainer/vllm_api_server.py")
        self.root = None if self.config.model_name in UNNAMED else self.config.model_name

    def request(self, prompt: list[int], options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "prompt": {"prompt_token_ids": prompt}, "logprobs": 0, "skip_special_tokens": False}

    def read(self, body: Any, prompt: list[int]) -> Answer:
        for name, what in (("logprobs", "logprobs"), ("token_ids", "token ids"), ("prompt_token_ids", "prompt ids")):
            if body.get(name) is None:
                raise TokenMismatch(f"{self.label} returned no {what}; training needs one that does")
        reasons = list(body["finish_reasons"])
        for reason in reasons:
            check_ended(reason)
        ids, logprobs = [], []
        for _, sampled, places in zip(reasons, body["token_ids"], body["logprobs"], strict=True):
            # Each place is a list with one {id: logprob}.
            given = [pair for place in places for pair in list(place[0].items())[:1]]
            if [int(token) for token, _ in given] != list(sampled):
                raise TokenMismatch(
                    f"{self.label} returned logprobs of other ids than it sampled: "
                    f"{first_difference([int(token) for token, _ in given], sampled)}"
                )
            ids.append(list(sampled))
            logprobs.append([logprob for _, logprob in given])
        return answer_of(list(body["prompt_token_ids"]), ids, logprobs, reasons, [None] * len(ids))

    def count_sampled(self, body: Any) -> int:
        return sum(map(len, body["token_ids"]))

    async def prompt_ids_of(self, text: str) -> list[int]:
        body = {"prompt": text, "max_tokens": 1, "logprobs": 0}

        def read(answer: Any) -> list[int]:
            return [int(i) for i in answer.get("prompt_token_ids") or ()]

        ids = await self.query(self.path, body, read, "encode a text")
        if not ids:
            raise EngineError(f"{self.label} returns no token ids")
        return ids

    async def score(self, ids: list[int]) -> list[float]:
        raise EngineError("atroposlib's /generate can't score a prompt")


SERVERS: Mapping[str, type[APIServer]] = {
    "vllm": CompletionsServer,
    "sglang": SGLangServer,
    "atropos": GenerateServer,
    "openai": ChatServer,
    "anthropic": AnthropicServer,
    "responses": ResponsesServer,
}
"""The classes for inference servers, by the name in `--openai.server_type`."""


@asynccontextmanager
async def open_server(config: APIServerConfig) -> AsyncIterator[Any]:
    """Open the server of an inference server's configuration; its connections are closed when the block ends."""
    server = server_for(config)
    try:
        yield server
    finally:
        await server.close()


def server_for(config: APIServerConfig, reasoning_config: ReasoningConfig | None = None) -> APIServer:
    """Return the server of a configuration."""
    return SERVERS[config.server_type](config, reasoning_config=reasoning_config)
