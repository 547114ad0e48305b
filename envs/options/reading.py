"""Read options from a command line and from a YAML file; every mistake is found, and all are reported at once.

`--env.NAME VALUE` or `--env.NAME=VALUE`. A list is `a,b`, a YAML list, or the option given several times. Variables are
`name=value`, a YAML mapping, or `--env.OPTION.name value`; their values are numbers, booleans and lists if they read
so, as in YAML. The command line wins over the file, also inside of a mapping, and for every server of a list. Nothing
else may be said twice.
"""

from __future__ import annotations

import enum
import json
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from envs.config import IN_PYTHON, NO_EFFECT, StrictOptions
from envs.options.command import EngineConfig, Options, UsageError
from sandboxes.naming import meant

MOST_VALUES = 100_000
"""Values in a YAML text, counted as often as aliases repeat them."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option. path: of its value. kind: its type, a model's class if it has options of its own.

    useless: atroposlib has it, and it is refused."""

    path: tuple[str, ...]
    kind: Any
    useless: bool = False

    @property
    def name(self) -> str:
        """Return how it is written."""
        return "--" + ".".join(self.path)


@dataclass(slots=True)
class OptionValues:
    """The values read so far. values: nested as the options are. places: of those values, by path."""

    values: dict[str, Any] = field(default_factory=dict)
    given: dict[tuple[str, ...], str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def read_options(config_cls: type[BaseModel], argv: Sequence[str]) -> Options:
    """Return the values from the command line and its configuration file. Raises UsageError with every mistake."""
    known = {option.name: option for option in options_of(config_cls)}
    said = _read_arguments(argv, known)
    config = said.values.pop("config", None)
    values, problems = said.values, said.problems
    if config is not None:
        try:
            values = _over(read_file(Path(config)), said)
        except UsageError as error:
            problems.append(str(error))
    # Each part by itself: what is wrong in one hides no mistake in another.
    given, env = values.pop("openai", None), _part(config_cls, values.pop("env", None), ("env",), known, problems)
    servers: list[tuple[tuple[str, ...], Any]] = [(("openai",), given)]
    if isinstance(given, list):
        servers = [(("openai", str(i)), server) for i, server in enumerate(given)]
    engines = [_part(EngineConfig, server, place, known, problems) for place, server in servers]
    options: Any = _part(Options, {**values, "env": env}, (), known, problems)
    if problems:
        raise UsageError("\n".join(["these options are wrong:", *(f"  {problem}" for problem in problems)]))
    found: Options = options.model_copy(update={"openai": engines})
    return found


def options_of(config_cls: type[BaseModel]) -> Iterator[Option]:
    """Return all options of a command, by an environment's class of options."""
    yield Option(("config",), Path)
    for name, info in Options.model_fields.items():
        kind = {"env": config_cls, "openai": EngineConfig}.get(name, info.annotation)
        yield from _inside((name,), kind)


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file. Raises UsageError if it is no mapping, or says something twice."""
    try:
        value = _loaded(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"--config {path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    except OSError as error:
        raise UsageError(f"--config {path}: {error.strerror}; give a YAML file that is there") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"--config {path}: {error}") from None
    value = {} if value is None else value
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise UsageError(f"--config {path}: expected a mapping with `env` and `openai`")
    return value


def scalar(text: str) -> Any:
    """Return the YAML value of a text: a number, a boolean, a list, a mapping, or itself."""
    try:
        return _loaded(text)
    except (yaml.YAMLError, ValueError):
        return text


def _loaded(text: str) -> Any:
    """Return the content of a text in YAML. Raises YAMLError; ValueError if aliases make it endless, or nearly so."""
    value = yaml.load(text, _Strict)
    waiting, seen = [value], 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if seen > MOST_VALUES:
            raise ValueError(f"it holds itself, or more than {MOST_VALUES} values")
        waiting += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return value


def _part(
    kind: type[BaseModel], values: Any, place: tuple[str, ...], known: Mapping[str, Option], problems: list[str]
) -> Any:
    """Return the options of a part, None if they are wrong."""
    values = {} if values is None else values
    if isinstance(values, dict) and issubclass(kind, StrictOptions):
        useless, in_python = kind.useless(values), [name for name in values if name in kind.for_python]
        problems += [f"--{'.'.join((*place, name))}: {NO_EFFECT}" for name in useless]
        problems += [f"--{'.'.join((*place, name))}: {IN_PYTHON}" for name in in_python]
        values = {name: value for name, value in values.items() if name not in {*useless, *in_python}}
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems += [_explained(problem, place, known) for problem in error.errors()]
        return None


def _explained(problem: Any, outer: tuple[str, ...], known: Mapping[str, Option]) -> str:
    place = "--" + ".".join(map(str, (*outer, *problem["loc"]))).removeprefix("--")
    if problem["type"] == "extra_forbidden":
        return f"{place}: there is no such option{_meant(place, known)}"
    message = problem["msg"].removeprefix("Value error, ")
    # Options that contradict each other are named in the message.
    whole = problem["loc"] == () and problem["type"] == "value_error"
    secret = problem["loc"][-1:] == ("api_key",)
    return f"{place}: {message}" + ("" if whole or secret else f" (got {_short(problem['input'])})")


def _meant(name: str, known: Mapping[str, Option]) -> str:
    return meant(name, (one for one, option in known.items() if not option.useless))


def _inside(path: tuple[str, ...], kind: Any) -> Iterator[Option]:
    yield Option(path, kind)
    for inner in _members(kind):
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            refused = (*inner.unused, *inner.for_python) if issubclass(inner, StrictOptions) else ()
            for name in refused:
                yield Option((*path, name), Any, useless=True)
            for name, info in inner.model_fields.items():
                if name not in refused:
                    yield from _inside((*path, name), info.annotation)


def _read_arguments(argv: Sequence[str], known: Mapping[str, Option]) -> OptionValues:
    said, words = OptionValues(), list(argv)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        if not name.startswith("--"):
            said.problems.append(f"{word!r} belongs to no option{_meant('--' + name, known)}")
            continue
        if not equals and words and not words[0].startswith("--"):
            equals, text = "=", words.pop(0)
        option = known.get(name) or _entry(name, known)
        if option is None:
            said.problems.append(f"{name}: there is no such option{_meant(name, known)}")
        elif not equals:
            said.problems.append(f"{name}: it needs a value{' (true or false)' if option.kind is bool else ''}")
        else:
            _take(option, text, said)
    return said


def _entry(name: str, known: Mapping[str, Option]) -> Option | None:
    """Return the option for a name inside of an option with variables."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        option = known.get(".".join(parts[:end]))
        if option is not None:
            rest = tuple(parts[end:])
            free = any(get_origin(kind) is dict or kind is dict for kind in _members(option.kind)) and all(rest)
            return Option((*option.path, *rest), Any) if free else None
    return None


def _take(option: Option, text: str, said: OptionValues) -> None:
    """Add a value from the command line."""
    try:
        value = _typed(option.kind, text)
    except ValueError as error:
        said.problems.append(f"{option.name}: {error} (got {_short(text)})")
        return
    before = said.given.get(option.path)
    repeatable = isinstance(value, list | dict)
    if before is not None and not repeatable:
        said.problems.append(f"{option.name}: it is given twice ({_short(before)}, {_short(text)}); leave one out")
        return
    said.given[option.path] = text
    try:
        _put(said.values, option.path, value)
    except ValueError as error:
        said.problems.append(f"{option.name}: {error}")


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """Put a value into nested mappings, beside the present ones. Raises ValueError for a contradiction between them."""
    *outer, name = path
    for part in outer:
        values = values.setdefault(part, {})
        if not isinstance(values, dict):
            raise ValueError("it contradicts what is given before it; leave one out")
    there = values.get(name)
    if isinstance(there, dict) and isinstance(value, dict):
        for inner, item in value.items():
            _put(there, (inner,), item)
    elif isinstance(there, list) and isinstance(value, list):
        there += value
    elif name in values:
        raise ValueError(f"{name} is given twice ({_short(there)}, {_short(value)}); leave one out")
    else:
        values[name] = value


def _over(file: dict[str, Any], said: OptionValues) -> dict[str, Any]:
    """Return the file's values with those of the command line over them."""
    ours = dict(said.values)
    servers = file.get("openai")
    if isinstance(servers, list):
        servers = [{"base_url": server} if isinstance(server, str) else server for server in servers]
        if not servers:
            said.problems.append("--openai: the file's list of servers is empty; name one, or leave it out")
        given = ours.pop("openai", None)
        file = {**file, "openai": _servers(servers, given, said.problems) if isinstance(given, dict) else servers}
    return _merged(file, ours)


def _servers(listed: list[Any], given: dict[str, Any], problems: list[str]) -> list[Any]:
    """Return the file's servers with the command line's values for all of them."""
    if not all(isinstance(server, dict) for server in listed):
        return listed  # which is told with the other mistakes
    if "base_url" in given and listed:
        rest = [{name: value for name, value in server.items() if name != "base_url"} for server in listed]
        if any(other != rest[0] for other in rest):
            problems.append(
                "--openai.base_url: the file lists servers that differ in more than their URL, so it is not known "
                "which is meant; name the servers in the file alone"
            )
        listed = rest[:1]
    return [_merged(server, given) for server in listed]


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        there = merged.get(name)
        merged[name] = _merged(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return merged


def _typed(kind: Any, text: str) -> Any:
    """Return the value of a command line's text for an option of this type; pydantic does the rest.

    Raises ValueError for an unreadable mapping or list."""
    kinds = _members(kind)
    if type(None) in kinds:
        kinds = [one for one in kinds if one is not type(None)]
        if text in ("None", "null"):
            return None
    origins = [get_origin(one) or one for one in kinds]
    if any(isinstance(one, type) and issubclass(one, Mapping | BaseModel) for one in origins):
        return _mapping(text)
    several = [one for one, origin in zip(kinds, origins, strict=True) if _holds_several(origin)]
    listed = several[0] if several else None
    if listed is not None and (len(kinds) == 1 or text.startswith("[")):
        return _list(text, (get_args(listed) or (Any,))[0])
    if Any in kinds:
        return scalar(text)
    choices = [value for one in kinds for value in _choices(one)]
    value = scalar(text) if len(kinds) > 1 else text
    return next((choice for choice in choices if str(choice) == text), value if type(value) in kinds else text)


def _holds_several(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Collection) and not issubclass(origin, str | bytes)


def _members(kind: Any) -> list[Any]:
    """Return the possible types of a value, without the wrappers around them."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return [inner for one in get_args(kind) for inner in _members(one)]
    if hasattr(kind, "__metadata__"):  # Annotated
        return _members(get_args(kind)[0])
    return [kind]


def _choices(kind: Any) -> list[Any]:
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [one.value for one in kind] if isinstance(kind, type) and issubclass(kind, enum.Enum) else []


def _mapping(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    if text.lstrip().startswith("{"):
        try:
            value = _loaded(text)
        except (yaml.YAMLError, ValueError) as error:
            raise ValueError(f"it can't be read: {' '.join(str(error).split())}") from None
        if isinstance(value, dict):
            return value
    found: dict[str, Any] = {}
    for piece in _pieces(text):
        name, equals, value = piece.partition("=")
        if not (equals and name.strip()):
            raise ValueError('give it as name=value, or as a mapping: {"name": value}')
        _put(found, name.strip().split("."), scalar(value))
    return found


def _list(text: str, item: Any) -> list[Any]:
    if text.lstrip().startswith("["):
        try:
            value = json.loads(text)
        except ValueError:
            value = _unquoted(text, item)
        if isinstance(value, list):
            return value
    return [_typed(item, piece.strip()) for piece in _pieces(text) if piece.strip()]


def _unquoted(text: str, item: Any) -> list[Any]:
    """Return a list without quotes, such as [a, b]. Raises ValueError when its bracket is not closed."""
    if not text.rstrip().endswith("]"):
        raise ValueError("its list is not closed by ]")
    if Any in _members(item):
        value = scalar(text)
        return value if isinstance(value, list) else [value]
    return [_typed(item, piece.strip().strip("\"'")) for piece in _pieces(text.strip()[1:-1]) if piece.strip()]


def _pieces(text: str) -> list[str]:
    """Split text at commas, except those inside of brackets or quotes."""
    pieces, depth, quote, start = [], 0, "", 0
    for i, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'" and (i == 0 or text[i - 1] in "=,[{: "):
            quote = sign
        elif sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        elif sign == "," and depth <= 0:
            pieces.append(text[start:i])
            start = i + 1
    return [*pieces, text[start:]]


def _short(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= 80 else f"{text[:77]}…"


class _Strict(yaml.SafeLoader):
    """YAML with each key once, and 1e-5 as a number as in JSON and YAML 1.2."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key_node, yaml.ScalarNode):
                continue
            key = self.construct_object(key_node)
            if key in seen:
                said = f"{key!r} is there twice; leave one out"
                raise yaml.constructor.ConstructorError(None, None, said, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_Strict.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+|[0-9]*\.[0-9]+|[0-9]+\.[0-9]*)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)
