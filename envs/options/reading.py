"""Read options from a command line and from a YAML file; every mistake is found, and all are reported at once.

`--env.NAME VALUE` or `--env.NAME=VALUE`. A list is `a,b`, a YAML list, or the option given several times. Variables are
`name=value`, a YAML mapping, or `--env.OPTION.name value`; their values are numbers, booleans and lists if they read
so, as in YAML. The command line wins over the file, also inside of a mapping, and for every server of a list. Nothing
else may be given twice.
"""

from __future__ import annotations

import enum
import json
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from envs.config import IN_PYTHON, NO_EFFECT, REMOVED, StrictOptions
from envs.options.command import EngineConfig, Options, UsageError
from sandboxes.naming import did_you_mean

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


def read_options(config_cls: type[BaseModel], argv: Sequence[str]) -> Options:
    """Return the values from the command line and its configuration file. Raises UsageError with every mistake."""
    known = {option.name: option for option in options_of(config_cls)}
    values, problems = _read_arguments(argv, known)
    if (config := values.pop("config", None)) is not None:
        try:
            values = _apply_arguments(read_file(Path(config)), values, problems)
        except UsageError as error:
            problems.append(str(error))
    # Each part by itself: what is wrong in one hides no mistake in another.
    env = _validate_part(config_cls, values.pop("env", None), ("env",), known, problems)
    given = values.pop("openai", None)
    listed = enumerate(given) if isinstance(given, list) else [(None, given)]
    places = [(("openai",) if i is None else ("openai", str(i)), server) for i, server in listed]
    engines = [_validate_part(EngineConfig, server, place, known, problems) for place, server in places]
    options: Any = _validate_part(Options, {**values, "env": env}, (), known, problems)
    if problems:
        raise UsageError.of(problems)
    found: Options = options.model_copy(update={"openai": engines})
    return found


def options_of(config_cls: type[BaseModel]) -> Iterator[Option]:
    """Return all options of a command, by an environment's class of options."""
    yield Option(("config",), Path)
    for name, info in Options.model_fields.items():
        kind = {"env": config_cls, "openai": EngineConfig}.get(name, info.annotation)
        yield from _options_in((name,), kind)


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a YAML file. Raises UsageError if it is no mapping, or says something twice."""
    try:
        value = _load_yaml(path.read_text(encoding="utf-8-sig"))
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


def parse_scalar(text: str) -> Any:
    """Return the YAML value of a text: a number, a boolean, a list, a mapping, or itself."""
    try:
        return _load_yaml(text)
    except (yaml.YAMLError, ValueError):
        return text


def _load_yaml(text: str) -> Any:
    """Return the content of a text in YAML. Raises YAMLError; ValueError if aliases make it endless, or nearly so."""
    value = yaml.load(text, _StrictLoader)
    waiting, seen = [value], 0
    while waiting:
        item = waiting.pop()
        seen += 1
        if seen > MOST_VALUES:
            raise ValueError(f"it holds itself, or more than {MOST_VALUES} values")
        waiting += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
    return value


def _validate_part(
    kind: type[BaseModel], values: Any, place: tuple[str, ...], known: Mapping[str, Option], problems: list[str]
) -> Any:
    """Return the options of a part, None if they are wrong."""
    values = {} if values is None else values
    if isinstance(values, dict) and issubclass(kind, StrictOptions):
        useless, in_python = kind.useless_options(values), [name for name in values if name in kind.for_python]
        problems += [f"--{'.'.join((*place, name))}: {NO_EFFECT}" for name in useless]
        problems += [f"--{'.'.join((*place, name))}: {IN_PYTHON}" for name in in_python]
        values = {name: value for name, value in values.items() if name not in {*useless, *in_python}}
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems += [_describe_problem(problem, place, known) for problem in error.errors()]
        return None


def _describe_problem(problem: Any, outer: tuple[str, ...], known: Mapping[str, Option]) -> str:
    place = "--" + ".".join(map(str, (*outer, *problem["loc"]))).removeprefix("--")
    if problem["type"] == "extra_forbidden":
        return _describe_unknown(place, known)
    message = problem["msg"].removeprefix("Value error, ")
    # Options that contradict each other are named in the message.
    whole = problem["loc"] == () and problem["type"] == "value_error"
    return f"{place}: {message}" + ("" if whole else _format_values(place, problem["input"], prefix="got "))


def _describe_unknown(name: str, known: Mapping[str, Option]) -> str:
    """Return the refusal of a name: the successor of an option of earlier versions, or the nearest option."""
    went = REMOVED.get(".".join(name.removeprefix("--").split(".")[:2]))
    return f"{name}: {went or 'there is no such option' + _suggest(name, known)}"


def _suggest(name: str, known: Mapping[str, Option]) -> str:
    return did_you_mean(name, (one for one, option in known.items() if not option.useless))


def _options_in(path: tuple[str, ...], kind: Any) -> Iterator[Option]:
    yield Option(path, kind)
    for inner in _alternatives(kind):
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            refused = (*inner.unused, *inner.for_python) if issubclass(inner, StrictOptions) else ()
            yield from (Option((*path, name), Any, useless=True) for name in refused)
            for name, info in inner.model_fields.items():
                if name not in refused:
                    yield from _options_in((*path, name), info.annotation)


def _read_arguments(argv: Sequence[str], known: Mapping[str, Option]) -> tuple[dict[str, Any], list[str]]:
    """Return the values, nested as the options are, and what is wrong."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        name, equals, text = word.partition("=")
        if not name.startswith("--"):
            problems.append(f"{word!r} belongs to no option{_suggest('--' + name, known)}")
            continue
        if not equals and words and not words[0].startswith("--"):
            equals, text = "=", words.pop(0)
        option = known.get(name) or _entry_option(name, known)
        if option is None:
            problems.append(_describe_unknown(name, known))
        elif not equals:
            problems.append(f"{name}: it needs a value{' (true or false)' if option.kind is bool else ''}")
        else:
            try:
                # The shell has taken an option's quotes; a mapping's entry is read as inside of the mapping.
                value = _parse_text(option.kind, text) if name in known else _parse_item(option.kind, text)
            except ValueError as error:
                problems.append(f"{name}: {error} (got {_shorten(text)})")
                continue
            try:
                _insert(values, option.path, value)
            except ValueError as error:
                problems.append(f"{name}: {error}")
    return values, problems


def _entry_option(name: str, known: Mapping[str, Option]) -> Option | None:
    """Return the option for a name inside of an option with variables."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        option = known.get(".".join(parts[:end]))
        if option is not None:
            rest = tuple(parts[end:])
            free = any(get_origin(kind) is dict or kind is dict for kind in _alternatives(option.kind)) and all(rest)
            return Option((*option.path, *rest), _inner_type(option.kind, rest)) if free else None
    return None


def _insert(values: dict[str, Any], path: Sequence[str], value: Any, named: str = "it") -> None:
    """Put a value into nested mappings, beside the present ones. Raises ValueError for a contradiction between them."""
    *outer, name = path
    for part in outer:
        values = values.setdefault(part, {})
        if not isinstance(values, dict):
            raise ValueError("it contradicts what is given before it; leave one out")
    there = values.get(name)
    if isinstance(there, dict) and isinstance(value, dict):
        for inner, item in value.items():
            _insert(there, (inner,), item, inner)
    elif isinstance(there, list) and isinstance(value, list):
        there += value
    elif name in values:
        raise ValueError(f"{named} is given twice{_format_values(name, there, value)}; leave one out")
    else:
        values[name] = value


def _apply_arguments(file: dict[str, Any], ours: dict[str, Any], problems: list[str]) -> dict[str, Any]:
    """Return the file's values with those of the command line over them."""
    servers = file.get("openai")
    if not isinstance(servers, list):
        return _merge(file, ours)
    if not servers:
        problems.append("--openai: the file's list of servers is empty; name one, or leave it out")
    servers = [{"base_url": server} if isinstance(server, str) else server for server in servers]
    given = ours.get("openai", {})
    if all(isinstance(server, dict) for server in servers):  # else reported with the other mistakes
        if "base_url" in given and servers:
            servers = [{name: value for name, value in server.items() if name != "base_url"} for server in servers]
            if any(other != servers[0] for other in servers):
                problems.append(
                    "--openai.base_url: the file lists servers that differ in more than their URL, so it is not known "
                    "which is meant; name the servers in the file alone"
                )
            servers = servers[:1]
        servers = [_merge(server, given) for server in servers]
    return _merge(file, {**ours, "openai": servers})


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        there = merged.get(name)
        merged[name] = _merge(there, value) if isinstance(there, dict) and isinstance(value, dict) else value
    return merged


def _parse_text(kind: Any, text: str) -> Any:
    """Return the value of a command line's text for an option of this type; pydantic does the rest.

    Raises ValueError for an unreadable mapping or list."""
    kinds = _alternatives(kind)
    if type(None) in kinds and text in ("None", "null"):
        return None
    kinds = [one for one in kinds if one is not type(None)]
    classes = [(one, get_origin(one) or one) for one in kinds]
    if any(isinstance(origin, type) and issubclass(origin, Mapping | BaseModel) for _, origin in classes):
        return _parse_mapping(text, kind)
    several = [
        one
        for one, origin in classes
        if origin is not str and isinstance(origin, type) and issubclass(origin, Collection)
    ]
    if several and (len(kinds) == 1 or text.startswith("[")):
        return _parse_list(text, (get_args(several[0]) or (Any,))[0])
    if Any in kinds:
        return parse_scalar(text)
    choices = [value for one, origin in classes if origin is Literal for value in get_args(one)]
    choices += [one.value for choice in kinds if isinstance(choice, enum.EnumType) for one in list[Any](choice)]
    value = parse_scalar(text) if len(kinds) > 1 else text
    return next((choice for choice in choices if str(choice) == text), value if type(value) in kinds else text)


def _alternatives(kind: Any) -> list[Any]:
    """Return the possible types of a value, without the wrappers around them."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return [inner for one in get_args(kind) for inner in _alternatives(one)]
    if hasattr(kind, "__metadata__"):  # Annotated
        return _alternatives(get_args(kind)[0])
    return [kind]


def _inner_type(kind: Any, path: Sequence[str]) -> Any:
    """Return the type of a value inside of a mapping, by the names that lead to it; Any where no type says it."""
    for name in path:
        kind = next(filter(None, (_member_type(one, name) for one in _alternatives(kind))), Any)
    return kind


def _member_type(kind: Any, name: str) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_fields[name].annotation if name in kind.model_fields else None
    return get_args(kind)[1] if get_origin(kind) is dict else None


def _parse_item(kind: Any, text: str) -> Any:
    """Return a value inside of a list or a mapping: as its type says, and what is in quotes or brackets as in YAML."""
    return parse_scalar(text) if text[:1] in ("'", '"', "[", "{") else _parse_text(kind, text)


def _parse_mapping(text: str, kind: Any) -> dict[str, Any]:
    if not text.strip():
        return {}
    if text.lstrip().startswith("{"):
        try:
            value = _load_yaml(text)
        except (yaml.YAMLError, ValueError) as error:
            raise ValueError(f"it can't be read: {' '.join(str(error).split())}") from None
        if isinstance(value, dict):
            return value
    found: dict[str, Any] = {}
    for piece in _split_at_commas(text):
        name, equals, value = piece.partition("=")
        if not (equals and name.strip()):
            raise ValueError('give it as name=value, or as a mapping: {"name": value}')
        path = name.strip().split(".")
        _insert(found, path, _parse_item(_inner_type(kind, path), value))
    return found


def _parse_list(text: str, item: Any) -> list[Any]:
    """Return the items of `a,b` or `[a, "b"]`. Raises ValueError if a bracket is not closed."""
    text = text.strip()
    if text.startswith("["):
        if not text.endswith("]"):
            raise ValueError("its list is not closed by ]")
        text = text[1:-1]
    pieces = filter(None, map(str.strip, _split_at_commas(text)))
    return [_parse_item(item, piece) for piece in pieces]


def _split_at_commas(text: str) -> list[str]:
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


def _format_values(name: str, *values: Any, prefix: str = "") -> str:
    """Return an option's values in brackets; nothing for a key."""
    return "" if name.endswith("_key") else f" ({prefix}{', '.join(map(_shorten, values))})"


def _shorten(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= 80 else f"{text[:77]}…"


class _StrictLoader(yaml.SafeLoader):
    """YAML with each key once, and 1e-5 as a number as in JSON and YAML 1.2."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge" or not isinstance(key_node, yaml.ScalarNode):
                continue
            key = self.construct_object(key_node)
            if key in seen:
                message = f"{key!r} is there twice; leave one out"
                raise yaml.constructor.ConstructorError(None, None, message, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+|[0-9]*\.[0-9]+|[0-9]+\.[0-9]*)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)
