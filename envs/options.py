"""Hold what a command was told: the options of its environment and of its inference servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from pydantic import ConfigDict, Field
from pydantic_settings import BaseSettings, SettingsConfigDict
from transformers import AutoTokenizer


class UsageError(ValueError):
    """The command line or the configuration file is wrong; the message says where."""


class EngineConfig(APIServerConfig):  # type: ignore[misc]  # atroposlib is untyped
    """How one inference server is reached."""

    model_config = ConfigDict(extra="forbid")

    base_url: str = Field(
        default="http://localhost:9001/v1",
        description="Where the inference server answers; several with commas between them",
    )
    server_type: Literal["vllm", "sglang", "atropos", "openai"] = Field(
        default="vllm",
        description="What the inference server speaks: vLLM's completions or SGLang's /generate by token ids, "
        "atroposlib's own /generate, or plain OpenAI chat (no tokens: for evaluate and process only)",
    )
    timeout: int = Field(default=1200, gt=0, description="Longest wait for an answer in seconds")


class Options(BaseSettings):
    """What a command was told; `openai` becomes `engines`."""

    model_config = SettingsConfigDict(
        extra="forbid", cli_implicit_flags=False, cli_hide_none_type=True, cli_avoid_json=True
    )

    env: Any
    openai: EngineConfig = Field(default_factory=EngineConfig)
    config: Path | None = Field(default=None, description="YAML file with these options; the command line wins")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug shows every request and reply"
    )
    _engines: list[EngineConfig] = []

    @property
    def engines(self) -> list[EngineConfig]:
        """Return one for each URL, or those that the file lists."""
        urls = [url.strip() for url in self.openai.base_url.split(",") if url.strip()]
        return self._engines or [self.openai.model_copy(update={"base_url": url}) for url in urls]


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer by folder or hub name. Raises UsageError with the remedy."""
    try:
        return AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UsageError(
            f"--env.tokenizer_name {name!r} can't be loaded ({reason}); "
            "give the folder or the hub name of the model that the inference server serves"
        ) from error
