"""Explain a command's options: those of the environment first, in groups; the rest where `--help-all` asks for them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from envs.config import AgentEnvConfig, Told
from envs.options.command import EngineConfig, Options

_COLUMN = 34
"""Where explanations begin."""


def usage(prog: str, about: str, config_cls: type[AgentEnvConfig], command: str, *, whole: bool) -> str:
    """Return the help of a command. whole: with the options that are rarely of use."""
    own = {name: info for name, info in config_cls.model_fields.items() if name not in AgentEnvConfig.model_fields}
    blocks = [
        f"{prog} {command} [--OPTION VALUE …]\n\n{about}",
        _block("This environment", _lines("env", config_cls, own)),
        *_sections("openai", EngineConfig),
        *_sections("env", config_cls),
    ]
    sectioned = {name for cls in (config_cls, EngineConfig) for names in cls.sections.values() for name in names}
    if whole:
        rest = [name for name in AgentEnvConfig.model_fields if name not in sectioned]
        servers = [name for name in EngineConfig.model_fields if name not in sectioned]
        lines = [*_lines("env", config_cls, rest), *_lines("openai", EngineConfig, servers)]
        blocks.append(_block("Rarely of use", lines))
    command_s = [name for name in Options.model_fields if name not in ("env", "openai")]
    if command != "evaluate":
        command_s = [name for name in command_s if name not in Options.of_evaluate]
    lines = [
        _line("--config FILE", "YAML file with these options, as env: {NAME: VALUE}; the command line wins"),
        *_lines("", Options, command_s),
        _line("--help-all", "these options, and those that are rarely of use"),
    ]
    return "\n\n".join([block for block in [*blocks, _block("This command", lines)] if block])


def _sections(place: str, kind: type[Told]) -> Iterator[str]:
    for title, names in kind.sections.items():
        yield _block(title, _lines(place, kind, [name for name in names if name in kind.model_fields]))


def _block(title: str, lines: Iterable[str]) -> str:
    listed = list(lines)
    return "\n".join([f"{title}:", *listed]) if listed else ""


def _lines(place: str, kind: type[BaseModel], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        info = kind.model_fields[name]
        path = f"{place}.{name}" if place else name
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            yield from _lines(path, info.annotation, info.annotation.model_fields)
        else:
            yield _line(f"--{path}", f"{info.description or name}{_default(info.default)}")


def _line(option: str, text: str) -> str:
    width = max(60, shutil.get_terminal_size().columns)
    indent = " " * _COLUMN
    wrapped = textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return f"  {option}\n{wrapped}" if len(option) > _COLUMN - 4 else f"  {option:{_COLUMN - 2}}" + wrapped[_COLUMN:]


def _default(value: Any) -> str:
    if value is PydanticUndefined or value is None or value in ("", [], {}):
        return ""
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return f" ({str(value).lower() if isinstance(value, bool) else value})" if not isinstance(value, Path) else ""
