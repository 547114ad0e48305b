"""Options of a command: how they are read, explained and held. Those of an environment are in `envs.config`."""

from envs.options.command import WITHOUT_TOKENS, EngineConfig, Options, UsageError

__all__ = ["WITHOUT_TOKENS", "EngineConfig", "Options", "UsageError"]
