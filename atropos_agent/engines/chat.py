"""A plain OpenAI-compatible endpoint as the model."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import openai
from atroposlib.envs.server_handling.openai_server import OpenAIServer
from atroposlib.envs.server_handling.server_baseline import APIServerConfig, ReasoningConfig
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential

from atropos_agent.engines.errors import (
    ODD,
    ContextOverflow,
    EngineDown,
    ModelNotServed,
    NoCompletion,
    NotThisServer,
    OddAnswer,
    Refused,
    parse_error,
    refusal,
    shown,
)
from atropos_agent.engines.hosted import Usage, pause_in, pause_s, refused_option, room_left
from atropos_agent.engines.http import (
    LARGEST,
    NoAnswer,
    is_packed_twice,
    needs_environment,
    split_address,
    whole,
)
from atropos_agent.engines.load import Load
from atropos_agent.engines.token_server import note_request
from atropos_agent.tokens.chat import BESIDE, RETURNED, read_chat
from atropos_agent.tokens.conversation import Completion
from atropos_agent.types import AgentError, EngineError, count_of
from sandboxes.tls import explain_tls_failure

logger = logging.getLogger(__name__)

TRIES, LIMITED_TRIES = 5, 10
"""How often a request with a passing failure is sent, and one that meets a limit of the rate without a pause: for more
than a minute, since limits are mostly of a minute."""
LEAST_S = 1.0
"""Seconds to which a provider's own pauses grow at least, from one try to the next."""
LONG_S, TOLD_S = 10.0, 60.0
"""Seconds of a pause worth a line in the log, and from one such line to the next."""
UNNAMED = ("default", "", None)
"""Names of a model that say nothing."""
_SHOWN = 10
_LIMIT = re.compile(r"max_\w*tokens.*(too large|at most|maximum|exceed|range|between|less than|must be)", re.DOTALL)
_KEY = re.compile(r"api.?key|authenticat|unauthori[sz]ed|credentials|no connected db", re.IGNORECASE)
"""Words of refusals with other statuses than 401 and 403: Gemini's, and those of LiteLLM without a database."""
_FIRST = {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 1024}
"""The request at the start: enough tokens for models that think first."""
_TOOL = {
    "type": "function",
    "function": {
        "name": "terminal",
        "description": "Run a shell command. The working directory and exported variables last from call to call.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}
_CALL = re.compile(r"</?tool_call|\[TOOL_CALLS\]|<\|tool_call|<function=|<\|python_tag\|>|<｜tool▁call")
"""Beginnings of calls as models write them. A server with a parser leaves none of them in a reply's text."""
_AS_TEXT = "give --env.tool_format hermes, so that tools and calls are text"
NOT_OPENAI = ("top_k", "min_p")
"""Options outside of OpenAI's protocol; many servers take them beside it."""
_OF_THE_WIRE = ("content-encoding", "content-length", "transfer-encoding")
"""Headers of a body as it was sent, not as it is unpacked."""
_NO_KEY = "none"
"""Stands for the key of a local server, which wants none; it is not sent."""


class _BoundedClient(openai.DefaultAsyncHttpxClient):  # type: ignore[misc]  # openai is not followed
    """Reads no more than `LARGEST` bytes of an answer, unpacked: httpx, or httpx2, reads whatever comes."""

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        response = await super().send(request, stream=True, **options)
        if stream:
            return response
        body = bytearray()
        try:
            if is_packed_twice(response.headers):
                raise NoAnswer("its answer is compressed several times")
            async for part in response.aiter_bytes():
                body += part
                if len(body) > LARGEST:
                    raise NoAnswer(f"it answered with more than {LARGEST} bytes")
        finally:
            await response.aclose()
        headers = [(name, value) for name, value in response.headers.items() if name not in _OF_THE_WIRE]
        bounded = type(response)(response.status_code, headers=headers, content=whole(body), request=response.request)
        bounded.encoding = "utf-8"  # as in `Response.text`
        return bounded


class ChatServer(OpenAIServer):  # type: ignore[misc]  # atroposlib is untyped
    """A plain OpenAI-compatible endpoint: messages in, text out, no token ids and so no rows.

    atroposlib's own way to ask tries every request nine times, whatever the error, and hides the server's message."""

    path = "/chat/completions"
    """The path of requests; an address may end with it."""
    takes_tools = True
    """Whether the endpoint shows tools to the model by itself."""

    def __init__(self, config: APIServerConfig, reasoning_config: ReasoningConfig | None = None) -> None:
        # Its health check is a task that asks for ever and tells nobody.
        config = config.model_copy(update={"health_check": False, "api_key": config.api_key or _NO_KEY})
        self.url, query = split_address(str(config.base_url), self.path)
        self._has_key = config.api_key != _NO_KEY
        own: dict[str, str] = getattr(config, "headers", {})
        self._keyless = {} if self._has_key or "Authorization" in own else {"Authorization": openai.Omit()}
        self.openai = openai.AsyncClient(
            api_key=config.api_key,
            base_url=self.url,
            default_headers=own,
            default_query=dict(parse_qsl(query.removeprefix("?"))),
            timeout=config.timeout,
            max_retries=0,  # `chat_completion` tries again, with the provider's pauses
            # A server has no say in where requests go from here: it may name another machine's, or this one's.
            http_client=_BoundedClient(follow_redirects=False, trust_env=needs_environment(self.url)),
        )
        super(OpenAIServer, self).__init__(config, reasoning_config=reasoning_config)
        self.label = f"the endpoint at {self.url}"
        self.sampled = 0
        """Replies that it has ever given us."""
        self.usage = Usage()
        self.left_out: list[str] = []
        """Options that the model does not take."""
        self._prompt_tokens = 0
        """Of the request at the start; 0 if the endpoint does not say."""
        self._told_of_calls = False
        self._quiet_until = 0.0
        self._renames = False
        """Whether the model takes `max_completion_tokens` alone."""
        self._prices: list[float] = list(getattr(self.config, "prices", ()))

    async def connect(self) -> None:
        """Find out by one short request whether the key and the model are right. Raises EngineError with the remedy."""
        try:
            if self.config.model_name in UNNAMED:
                self.config.model_name = await self._only_model()
            self._prompt_tokens = _prompt_tokens(await self._send_fitting(dict(_FIRST)))
        except NotThisServer:
            raise
        except Refused as error:
            raise await self._translate_refusal(error) from error
        except NoCompletion as error:
            remedy = "set --openai.base_url to the endpoint's address, or --openai.server_type to what it speaks"
            raise NotThisServer(f"{error}; {remedy}") from error
        except EngineDown as error:
            if (why := explain_tls_failure(error, "--openai.base_url")) is not None:
                raise NotThisServer(f"{self.label} can't be used: {why}") from error
            if not self._has_key and isinstance(error, OddAnswer):  # LiteLLM's for Anthropic's protocol is a 500
                raise EngineDown(f"{error}; no key was given: name its variable with --openai.api_key_var") from error
            if self._has_key or not self.url.startswith("https:"):
                raise
            raise NotThisServer(
                f"give --openai.api_key_var or --openai.api_key, which a hosted model needs; {error}"
            ) from error

    async def check_tools(self) -> None:
        """Find out by short requests, after `connect`, whether the endpoint shows tools to the model: some leave them
        out without a word, and then the model can't act. Raises EngineError with the remedy."""
        try:
            shown = _prompt_tokens(await self.chat_completion(**_FIRST, tools=[_TOOL]))
            if not 0 < shown <= self._prompt_tokens:
                return
            # A server may count something else than the prompt.
            longer = [{"role": "user", "content": f"Hi. {_TOOL}"}]
            if _prompt_tokens(await self.chat_completion(**{**_FIRST, "messages": longer})) <= self._prompt_tokens:
                return
        except Refused as error:
            raise await self._translate_refusal(error) from error
        except OddAnswer as error:
            raise NotThisServer(f"{error}; without tools it answered: {_AS_TEXT}") from error
        raise NotThisServer(
            f"{self.label} does not show tools to the model: a prompt has {self._prompt_tokens} tokens without a tool, "
            f"and {shown} with one. If the model's chat template has no place for them, {_AS_TEXT}"
        )

    async def chat_completion(self, **options: Any) -> Any:
        """Return a reply to `messages` in OpenAI's shape. Raises AgentError with the server's message."""
        split, began = options.pop("split", "train"), time.monotonic()
        # What changes nothing is left to the model: some refuse even that.
        neutral = {"top_p": 1.0, "n": 1, "stop": None}
        options = {name: value for name, value in options.items() if name not in neutral or value != neutral[name]}
        usual = wait_exponential(multiplier=0.5, max=20)
        async with self.sem if split == "train" else self.eval_sem:
            async for attempt in AsyncRetrying(
                stop=lambda state: _requested_pause(state) is None and state.attempt_number >= _tries(state),
                wait=lambda state: _pause(_requested_pause(state), usual(state)),
                retry=retry_if_exception_type(EngineDown),
                before_sleep=self._log_pause,
                reraise=True,
            ):
                with attempt:
                    answer = await self._send_fitting(options)
        self.sampled += 1
        self.usage.add(getattr(answer, "usage", None), self._prices)
        if "tools" in options and not self._told_of_calls:
            self._warn_of_call_in_text(read_chat(answer))
        note_request(self, split, time.monotonic() - began, attempt.retry_state.attempt_number)
        return answer

    async def load(self) -> Load | None:
        """Return nothing: such a server does not say how busy it is."""
        return None

    async def alive(self) -> bool:
        """Tell that it is there: such a server is not looked after."""
        return True

    async def close(self) -> None:
        """Close the connections."""
        await self.openai.close()

    async def _send_fitting(self, options: dict[str, Any]) -> Any:
        """Ask with the options that the model takes, and for a reply that its context window has room for. Raises as
        `_send_once` does."""
        full: ContextOverflow | None = None
        while True:
            remaining = {name: value for name, value in options.items() if name not in self.left_out}
            try:
                return await self._send_once(remaining)
            except ContextOverflow as error:
                limit = int(remaining.get("max_tokens") or 0)
                # What a server names may be too much, too: then half as much is requested.
                limit = room_left(str(error).partition(": ")[2], limit) if full is None else limit // 2
                full = full or error
                if limit == 0:
                    raise full from None
                options = {**options, "max_tokens": limit}
            except Refused as error:
                if full is not None:  # fewer tokens than it gives at all
                    raise full from error
                beside = {name: True for message in remaining["messages"] for name in message.get(BESIDE, ())}
                beside = {name: True for name in beside if name not in self.left_out}
                if (name := refused_option(str(error), {**remaining, **beside})) is None:
                    if remedy := _remedy(str(error), remaining):
                        raise Refused(f"{error}; {remedy}", status=error.status) from error
                    raise
                if name not in self.left_out:
                    self.left_out.append(name)
                    then = "its thinking is not sent back" if name in RETURNED else "the model's own default holds"
                    logger.warning("%s takes no %s, so that %s: %s", self.label, name, then, error)

    async def _send_once(self, options: dict[str, Any]) -> Any:
        """Ask once. Raises AgentError; EngineDown if another try may succeed."""
        sent = [_strip_unknown_keys(message, self.left_out) for message in options["messages"]]
        options = {**options, "messages": sent}
        if self._renames and "max_tokens" in options:
            options["max_completion_tokens"] = options.pop("max_tokens")
        own = {name: options[name] for name in NOT_OPENAI if options.get(name) is not None}
        known = {name: value for name, value in options.items() if name not in NOT_OPENAI}
        request = self._inject_reasoning_kwargs({**known, "model": self.config.model_name})
        if own:
            request["extra_body"] = {**request.get("extra_body", {}), **own}
        try:
            answer = await self.openai.chat.completions.create(**request, extra_headers=self._keyless)
        except openai.APIStatusError as error:
            refuse_redirect(self.label, error.status_code, error.response.headers)
            message = error.body.get("message") if isinstance(error.body, dict) else None
            text = str(message or error.response.text)
            if error.status_code == 400 and "max_completion_tokens" in text and "max_tokens" in options:
                self._renames = True
                return await self._send_once(options)
            told = refusal(self.label, error.status_code, text)
            raise add_pause(told, error.status_code, error.response.headers) from error
        except (openai.APIConnectionError, NoAnswer) as error:
            raise self._no_answer_error(error) from error
        except (openai.OpenAIError, ValueError, RecursionError) as error:  # the latter: no JSON, or too deep
            raise NoCompletion(f"{self.label} answered with something that is no completion: {error}") from error
        if (failure := parse_error(getattr(answer, "model_extra", None))) is not None and failure[0] is not None:
            raise refusal(self.label, *failure)  # OpenRouter's of another provider
        try:
            read_chat(answer)
        except (*ODD, EngineError) as error:
            raise NoCompletion(
                f"{self.label} answered with something that is no completion: {shown(answer)}"
            ) from error
        return answer

    async def _list_models(self) -> Sequence[str]:
        """Return the models that the server lists; none if it lists none. Raises NotThisServer for a wrong key."""
        try:
            return [str(model.id) async for model in self.openai.models.list(extra_headers=self._keyless)]
        except openai.AuthenticationError as error:
            raise self._wrong_key_error(
                f"{self.label} answered {error.status_code}: {error.response.text[:300]}"
            ) from error
        except (openai.APIConnectionError, NoAnswer) as error:
            raise self._no_answer_error(error) from error
        except (openai.OpenAIError, *ODD):
            return []

    async def _only_model(self) -> str:
        served = await self._list_models()
        if len(served) != 1:
            raise ModelNotServed(f"no model is named; set --openai.model_name to {name_models(served)} of {self.label}")
        return served[0]

    async def _translate_refusal(self, error: Refused) -> EngineError:
        """Return the exception for a refusal of the first request."""
        missing, text = error.status in (404, 405, 501), str(error).partition(": ")[2]
        if error.status in (401, 403) or _KEY.search(text):
            return self._wrong_key_error(str(error))
        served = await self._list_models()
        if served and self.config.model_name not in served and not (missing and "model" not in text.lower()):
            return ModelNotServed(f"{error}; set --openai.model_name to {name_models(served)}")
        if missing:
            example = "" if re.search(r"/v\d", self.url + self.path) else f" (such as {self.url}/v1)"
            return NotThisServer(
                f"{error}; {self.url}{self.path} was asked: set --openai.model_name, --openai.base_url{example} or "
                "--openai.server_type to what is there"
            )
        return NotThisServer(f"{error}; it refuses what every rollout asks of it")

    def _no_answer_error(self, error: Exception) -> EngineDown:
        cause = error.__cause__ or error
        why = str(cause) or type(cause).__name__
        return EngineDown(f"{self.label} did not answer: {why}; start it, or set --openai.base_url")

    def _log_pause(self, state: RetryCallState) -> None:
        """Log a long pause before another try; of many requests' pauses, one a minute."""
        seconds, now = state.upcoming_sleep, time.monotonic()
        if seconds >= LONG_S and now >= self._quiet_until:
            self._quiet_until = now + TOLD_S
            error = None if state.outcome is None else state.outcome.exception()
            logger.warning("%s; the next try is in %.0f s", error, seconds)

    def _warn_of_call_in_text(self, reply: Completion) -> None:
        if (reply.message or {}).get("tool_calls") or not _CALL.search(reply.text or ""):
            return
        self._told_of_calls = True
        logger.warning(
            "%s left a call in the text of a reply, where it is not run: set its parser of calls, if it has one "
            "(--tool-call-parser of vLLM and SGLang), or %s",
            *(self.label, _AS_TEXT),
        )

    def _wrong_key_error(self, message: str) -> NotThisServer:
        given = "its key" if self._has_key else "its key (none was given)"
        return NotThisServer(f"{message}; set --openai.api_key to {given}")


def refuse_redirect(label: str, status: int, headers: Mapping[str, str]) -> None:
    """Raise Refused for an answer that points to another address."""
    if onward := headers.get("location"):
        what = f"{label} answered {status} and points to {onward}"
        raise Refused(f"{what}; set --openai.base_url to an address there", status=status)


def add_pause(error: AgentError, status: int, headers: Mapping[str, str]) -> AgentError:
    """Return an error with the pause that the provider asks for."""
    if isinstance(error, EngineDown):
        error.limited, named = status == 429, pause_s(headers)
        error.pause_s = pause_in(str(error)) if named is None and error.limited else named
    return error


def _prompt_tokens(answer: Any) -> int:
    return count_of(getattr(getattr(answer, "usage", None), "prompt_tokens", None))


def _remedy(text: str, options: Mapping[str, Any]) -> str:
    """Return the option that changes what a refusal names; "" if none does."""
    if "tools" in options and "tool" in text.lower():
        return f"for an endpoint without tools {_AS_TEXT}"
    return "set --env.max_reply_tokens to a number that it takes" if _LIMIT.search(text) else ""


def _pause(requested: float | None, usual: float) -> float:
    """Return the pause before another try, in seconds. requested: by the last answer, perhaps 0 for ever."""
    return usual if requested is None else max(requested, min(usual, LEAST_S))


def _tries(state: RetryCallState) -> int:
    error = None if state.outcome is None else state.outcome.exception()
    return LIMITED_TRIES if isinstance(error, EngineDown) and error.limited else TRIES


def _requested_pause(state: RetryCallState) -> float | None:
    """Return the pause in seconds that the last answer requested; None without one."""
    error = None if state.outcome is None else state.outcome.exception()
    return error.pause_s if isinstance(error, EngineDown) else None


def _strip_unknown_keys(message: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
    """Return a message with OpenAI's own keys, and those that the endpoint gave itself: others are refused."""
    beside = {name: value for name, value in message.get(BESIDE, {}).items() if name not in left_out}
    return {
        name: message[name] for name in ("role", "content", "tool_calls", "tool_call_id") if name in message
    } | beside


def name_models(served: Sequence[str]) -> str:
    """Return the first of a server's models in words: it may list any number, with names of any length."""
    if not served:
        return "a model"
    more = f" and {len(served) - _SHOWN} more" if len(served) > _SHOWN else ""
    return f"one of {', '.join(name[:200] for name in served[:_SHOWN])}{more}"
