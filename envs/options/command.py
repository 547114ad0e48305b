"""Hold a command's options: those of its environment and of its inference servers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from atropos_agent.engines.sessions import HEADERS
from envs.config import Count, NotNegative, StrictOptions
from sandboxes.arguments import web_address

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class UsageError(ValueError):
    """The command line or the configuration file is wrong; the message names the place."""

    @classmethod
    def of(cls, problems: Sequence[str]) -> UsageError:
        """Return one with all problems."""
        return cls("\n".join(["these options are wrong:", *(f"  {problem}" for problem in problems)]))


WITHOUT_TOKENS = ("openai", "responses", "anthropic")
"""The types of servers without token ids, and so without rows."""
_HOSTED = dict(zip(WITHOUT_TOKENS, (*["https://api.openai.com/v1"] * 2, "https://api.anthropic.com"), strict=True))


class EngineConfig(StrictOptions):
    """Reach one inference server. The class replaces atroposlib's `APIServerConfig`: see `envs.config`."""

    unused: ClassVar[Mapping[str, Any]] = MappingProxyType({"health_check": True, "tokenizer_name": "none"})
    essential: ClassVar[Sequence[str]] = ("base_url", "server_type", "model_name", "api_key_var")
    inherited: ClassVar[Sequence[str]] = (
        *("timeout", "num_max_requests_at_once", "num_requests_for_eval", "n_kwarg_is_ignored"),
        "rolling_buffer_length",
    )

    base_url: str = "http://localhost:9001/v1"
    """Address of the inference server; separate several by commas"""
    server_type: Literal["vllm", "sglang", "atropos", "openai", "responses", "anthropic"] = "vllm"
    """Protocol of the inference server; openai, responses and anthropic give no token ids, so evaluate and process
    alone take them (docs/hosted.md)"""
    model_name: str = "default"
    """The model's name at the inference server; "default" is its only model"""
    api_key: str | None = ""
    """API key of the inference server"""
    api_key_var: str = ""
    """Environment variable with the API key, such as OPENAI_API_KEY"""
    timeout: Annotated[int, Field(gt=0)] = 1200
    """Longest wait for an answer in seconds"""
    num_max_requests_at_once: Count = 512
    """Requests that this inference server is sent at the same time, at most"""
    num_requests_for_eval: Count = 64
    """The same of evaluations"""
    n_kwarg_is_ignored: bool = False
    """A plain OpenAI endpoint gives one reply, however many are asked for"""
    rolling_buffer_length: Count = 1000
    """Requests whose times are kept for W&B"""

    headers: dict[str, str] = Field(default={})
    """Headers of each request, as NAME=VALUE, such as a gateway's own; they come before those of the API key"""

    prices: list[NotNegative] = Field(default=[])
    """US dollars for a million tokens of input and of output, as 2.5,10, to count the cost"""

    session_headers: list[str] = Field(default=list(HEADERS), min_length=1)
    """Headers with a request's rollout, for routers that keep a conversation on one replica"""

    @model_validator(mode="after")
    def _require_address(self) -> Self:
        """Refuse a hosted model's protocol at the default address, that of an inference server on this machine."""
        if self.server_type in WITHOUT_TOKENS and "base_url" not in self.model_fields_set:
            raise ValueError(
                f"give --openai.base_url for --openai.server_type {self.server_type}, such as "
                f"{_HOSTED[self.server_type]}, and --openai.api_key_var unless the server is a local one"
            )
        return self

    @model_validator(mode="after")
    def _read_key(self) -> Self:
        """Take the key from its variable, which other machines of the run need not have."""
        if self.api_key and self.api_key_var:
            raise ValueError("give --openai.api_key or --openai.api_key_var, not both")
        self.api_key = self.api_key or self._check_key(os.environ.get(self.api_key_var))
        self.api_key_var = ""
        return self

    @field_validator("base_url", mode="before")
    @classmethod
    def _join_urls(cls, value: Any) -> Any:
        return ",".join(value) if isinstance(value, list) and all(isinstance(url, str) for url in value) else value

    @field_validator("base_url")
    @classmethod
    def _check_urls(cls, value: str) -> str:
        urls = [url.strip() for url in value.split(",") if url.strip()]
        if not urls:
            raise ValueError("it names no server")
        return ",".join(web_address(url) for url in urls)

    @field_validator("prices")
    @classmethod
    def _check_prices(cls, value: list[float]) -> list[float]:
        if len(value) not in (0, 2):
            raise ValueError("give two prices, of input and of output")
        return value

    @field_validator("session_headers")
    @classmethod
    def _check_headers(cls, value: list[str]) -> list[str]:
        if wrong := [name for name in value if not _HEADER.fullmatch(name)]:
            raise ValueError(f"{wrong[0]!r} is no name of a header")
        return value

    @field_validator("headers")
    @classmethod
    def _check_own_headers(cls, value: dict[str, str]) -> dict[str, str]:
        cls._check_headers(list(value))
        if wrong := [name for name, text in value.items() if not all(" " <= sign <= "~" for sign in text)]:
            raise ValueError(f"the value of {wrong[0]} has line ends or letters beyond ASCII in it")
        return {name.title(): text for name, text in value.items()}  # in one spelling, so that one replaces another

    @field_validator("api_key")
    @classmethod
    def _check_key(cls, value: str | None) -> str | None:
        value = (value or "").strip()
        if not all("!" <= sign <= "~" for sign in value):
            raise ValueError("no key has spaces, line ends or letters beyond ASCII in it; copy it again")
        return value

    @field_validator("api_key_var")
    @classmethod
    def _check_variable(cls, name: str) -> str:
        if name and not os.environ.get(name):
            raise ValueError(f"the environment has no variable {name}; set it, also in a file .env")
        return name

    @property
    def secrets(self) -> Sequence[str | None]:
        """Return what no log may hold."""
        return [self.api_key, *self.headers.values()]

    def per_url(self) -> list[EngineConfig]:
        """Return one for each URL."""
        return [self.model_copy(update={"base_url": url}) for url in self.base_url.split(",")]


class Options(StrictOptions):
    """Hold a command's options; `openai` becomes `engines`."""

    of_evaluate: ClassVar[Sequence[str]] = ("against", "inspect_log")

    env: Any
    openai: list[EngineConfig] = Field(default_factory=lambda: [EngineConfig()])
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """debug (every request and reply), info, warning or error"""
    against: Path | None = None
    """An earlier evaluation's file, to compare with task by task"""
    inspect_log: Path | None = None
    """Directory for a log of Inspect's: inspect view --log-dir DIR"""

    @property
    def engines(self) -> list[EngineConfig]:
        """Return one for each URL."""
        return [engine for config in self.openai for engine in config.per_url()]
