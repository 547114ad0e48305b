"""Explain a command's options in groups: the essential ones for `--help`, the others for `--help-all`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from envs.config import AgentEnvConfig
from envs.options.command import EngineConfig, Options

_COLUMN = 34
"""The column of the explanations."""


def usage(prog: str, about: str, config_cls: type[AgentEnvConfig], command: str, *, whole: bool) -> str:
    """Return the help of a command. whole: with all groups, not only the essential options."""
    essential = [
        *_format_options("openai", EngineConfig, EngineConfig.essential),
        *_format_options("env", config_cls, config_cls.essential),
    ]
    head = f"{prog} {command} [--OPTION VALUE …]\n\n{about}\n\nDefaults are in parentheses."
    blocks = [head, _format_block("Essential", essential)]
    if whole:
        left = [name for name in config_cls.model_fields if name not in {*config_cls.essential, *config_cls.inherited}]
        left = [name for name in left if name not in config_cls.for_python]
        own = [name for name in left if name not in AgentEnvConfig.model_fields]
        run = [name for name in left if name not in {*own, *config_cls.model}]
        shown = {*EngineConfig.essential, *EngineConfig.inherited}
        server = [name for name in EngineConfig.model_fields if name not in shown]
        inherited = [f"--env.{name}" for name in config_cls.inherited]
        inherited += [f"--openai.{name}" for name in EngineConfig.inherited]
        blocks += [
            _format_block("Inference server", _format_options("openai", EngineConfig, server)),
            _format_block("This environment", _format_options("env", config_cls, own)),
            _format_block("Model and rollouts", _format_options("env", config_cls, config_cls.model)),
            _format_block("Run, trainer and evaluation", _format_options("env", config_cls, run)),
            textwrap.fill(f"Also accepted, with atroposlib's meaning: {', '.join(inherited)}", 80),
        ]
    command_s = [name for name in Options.model_fields if name not in ("env", "openai")]
    if command != "evaluate":
        command_s = [name for name in command_s if name not in Options.of_evaluate]
    lines = [
        _format_option("--config FILE", "YAML file with these options, as env: {NAME: VALUE}; the command line wins"),
        *_format_options("", Options, command_s),
        _format_option("--help-all", "all options"),
    ]
    return "\n\n".join([block for block in [*blocks, _format_block("This command", lines)] if block])


def _format_block(title: str, lines: Iterable[str]) -> str:
    listed = list(lines)
    return "\n".join([f"{title}:", *listed]) if listed else ""


def _format_options(place: str, kind: type[BaseModel], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        info = kind.model_fields[name]
        path = f"{place}.{name}" if place else name
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _format_options(path, info.annotation, info.annotation.model_fields)
        else:
            given = _format_default(info.default, _choices(info.annotation))
            yield _format_option(f"--{path}", f"{info.description or name}{given}")


def _format_option(option: str, text: str) -> str:
    width = max(60, shutil.get_terminal_size().columns)
    indent = " " * _COLUMN
    wrapped = textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return f"  {option}\n{wrapped}" if len(option) > _COLUMN - 4 else f"  {option:{_COLUMN - 2}}" + wrapped[_COLUMN:]


def _choices(kind: Any) -> list[str]:
    """Return the possible values of an option with a choice of names; none of others."""
    return [str(value) for one in (kind, *get_args(kind)) if get_origin(one) is Literal for value in get_args(one)]


def _format_default(value: Any, choices: Sequence[str] = ()) -> str:
    if isinstance(value, list) or value is PydanticUndefined or isinstance(value, Path):
        choices = ()  # several of them may be given, and the explanation names them
    others = ", ".join(choice for choice in choices if choice != value)
    if value is PydanticUndefined or value is None or value in ("", [], {}):
        return f" ({others})" if others else ""
    if isinstance(value, list):
        value = ", ".join(map(str, value))
    more = f"; or {others}" if others else ""
    return f" ({str(value).lower() if isinstance(value, bool) else value}{more})" if not isinstance(value, Path) else ""
