"""Read a Dockerfile as far as it decides on its builder: its needs of BuildKit, and the images of its stages.

Source: https://docs.docker.com/reference/dockerfile, and the parser of moby/buildkit. Words are not split as in a
shell, and variables are filled from the `ARG`s before the first `FROM` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Version = tuple[int, int]
"""A Docker daemon's, such as (20, 10)."""

INSTRUCTIONS = frozenset(
    (
        *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"),
        *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
    )
)
BUILDKIT: Version = (18, 9)
"""The first Docker daemon with BuildKit."""
_HERE_DOCUMENT: Version = (23, 0)
_SPACED_HERE_DOCUMENT: Version = (28, 2)
"""With blanks between `<<` and the name of its end."""
_CLASSIC = {"COPY": {"from", "chown"}, "ADD": {"chown"}, "FROM": {"platform"}, "RUN": set[str]()}
"""Options that Docker's classic builder knows, of instructions with options of BuildKit's."""
_SINCE: Mapping[str, Version] = {"mount": (20, 10), "chmod": (20, 10), "checksum": (25, 0)}
"""First Docker daemons with an option without a frontend from elsewhere; else 23.0."""

_GIT = re.compile(r"git@|git://|ssh://|https?://[^\s?#]+\.git(?:#\S*)?$")
"""A source of ADD that BuildKit clones; the classic builder fetches a file, or refuses it."""
_GIT_SINCE: Version = (25, 0)

_DIRECTIVE = re.compile(r"#\s*(syntax|escape|check)\s*=\s*(\S.*)", re.IGNORECASE)
_OFFICIAL = re.compile(r"(?:docker\.io/)?docker/dockerfile(?:-upstream)?(?:[:@].*)?")
_WORD = re.compile(r"""(?:[^\s'"\\]|\\.|'[^']*'|"(?:\\.|[^"\\])*")+""", re.DOTALL)
_HERE = re.compile(r"\d*<<(-?)([\"']?)([A-Za-z_][\w.-]*)\2")
_PLATFORM = r"(?:BUILD|TARGET)(?:PLATFORM|OS|ARCH|VARIANT)"
_OF_PLATFORM = {"FROM": re.compile(rf"\$\{{?{_PLATFORM}\b"), "ARG": re.compile(rf"(?:^|\s){_PLATFORM}(?:\s|$)")}
"""Uses or declarations of variables that BuildKit fills and the classic builder does not know."""
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_LONGEST = 1000
"""Characters of a value, or of a text with variables: no image has a longer name. 40 lines may double one each time."""


class DockerfileError(ValueError):
    """No builder can read the Dockerfile; the message gives the line, and why."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """line: of its beginning, from 1. keyword: in upper case. options: before its arguments, without `--`.
    here: the first Docker daemon with its here-documents; None if it has none."""

    line: int
    keyword: str
    options: Mapping[str, str]
    rest: str
    here: Version | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """A need of BuildKit. since: the first Docker daemon with it."""

    line: int
    what: str
    since: Version

    @property
    def description(self) -> str:
        """Return its name and its requirement."""
        return f"line {self.line}: {self.what} needs BuildKit of Docker {self.since[0]}.{self.since[1]} or later"


@dataclass(frozen=True, slots=True)
class Stage:
    """base: an image, or the name of a stage before it. last: the arguments of the last of its instructions of each
    kind."""

    name: str
    base: str
    last: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """syntax: the line and image of a frontend in place of the daemon's; None if none is named."""

    syntax: tuple[int, str] | None
    instructions: Sequence[Instruction]

    @classmethod
    def read(cls, text: str) -> Dockerfile:
        """Read one. Raises DockerfileError."""
        lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        directives = dict(_directives(lines))
        at, syntax = directives.get("syntax", (0, ""))
        escape = directives.get("escape", (0, "\\"))[1]
        found = cls((at, syntax) if syntax else None, list(_instructions(lines, escape)))
        if found.has_foreign_frontend:
            return found
        for one in found.instructions:
            if one.keyword not in INSTRUCTIONS:
                raise DockerfileError(f"line {one.line}: there is no instruction {one.keyword}")
            if one.keyword == "FROM" and not one.rest:
                raise DockerfileError(f"line {one.line}: FROM names no image")
        if not any(one.keyword == "FROM" for one in found.instructions):
            raise DockerfileError("it has no FROM, so there is nothing to build on")
        return found

    @property
    def has_foreign_frontend(self) -> bool:
        """Tell whether its frontend is not Docker's own, so nothing is known of its instructions."""
        return self.syntax is not None and not _OFFICIAL.fullmatch(self.syntax[1])

    @property
    def needs(self) -> list[Need]:
        """Return the needs of BuildKit."""
        if self.has_foreign_frontend and self.syntax is not None:
            return [Need(self.syntax[0], f"# syntax={self.syntax[1]}", BUILDKIT)]
        return [need for one in self.instructions for need in _needs(one)]

    @property
    def stages(self) -> list[Stage]:
        """Return the stages, in order."""
        known, stages = self._arguments(), []
        for at, one in enumerate(self.instructions):
            if one.keyword != "FROM":
                continue
            words = _expand_variables(one.rest, known).split()
            inside = self.instructions[at + 1 :]
            end = next((i for i, other in enumerate(inside) if other.keyword == "FROM"), len(inside))
            last = {other.keyword: other.rest for other in inside[:end]}
            stages.append(Stage(words[2].lower() if len(words) > 2 else "", words[0] if words else "", last))
        return stages

    @property
    def images(self) -> list[str]:
        """Return its images from elsewhere, as far as their names are known."""
        if self.has_foreign_frontend:
            return []
        known, own = self._arguments(), {stage.name for stage in self.stages}
        own |= {str(number) for number in range(len(self.stages))} | {"", "scratch"}
        copied = [one.options["from"] for one in self.instructions if "from" in one.options]
        mounts = [one.options["mount"] for one in self.instructions if "mount" in one.options]
        mounted = re.findall(r"(?:^|,|\s)from=([^,\s]+)", " ".join(mounts))
        names = [
            *(stage.base for stage in self.stages),
            *(_expand_variables(name, known) for name in (*copied, *mounted)),
        ]
        return [name for name in dict.fromkeys(names) if name.lower() not in own and "$" not in name]

    @property
    def pulled(self) -> list[str]:
        """Return the images needed before the build, its frontend's too."""
        return [*self.images, *([self.syntax[1]] if self.syntax else [])]

    def workdir_of(self, base_image: str | None = None) -> str | None:
        """Return the image with the same working directory as the image made here; None if this one has its own, or
        nothing is known. base_image: in place of the last stage's image."""
        stages = self._built if base_image is None else self._built[:1]
        if not stages or any("WORKDIR" in stage.last for stage in stages):
            return None
        return base_image or stages[-1].base

    def last(self, keyword: str) -> str | None:
        """Return the arguments of the last such instruction for the image made here; None without one, or if nothing is
        known."""
        return next((stage.last[keyword] for stage in self._built if keyword in stage.last), None)

    @property
    def _built(self) -> list[Stage]:
        """Return the last stage, the stage that it begins from, and so on; none if nothing is known."""
        stages, found = self.stages if not self.has_foreign_frontend else [], list[Stage]()
        while stages:
            found.append(stages.pop())
            while stages and stages[-1].name != found[-1].base.lower():
                stages.pop()
        return found

    def _arguments(self) -> dict[str, str]:
        """Return the variables with a value before the first stage."""
        found: dict[str, str] = {}
        for one in self.instructions:
            if one.keyword == "FROM":
                break
            for word in _WORD.findall(one.rest):
                name, equals, value = word.partition("=")
                if one.keyword == "ARG" and equals:
                    filled = _expand_variables(value.strip("\"'"), found)
                    found[name] = filled if len(filled) <= _LONGEST else ""
        return found


def drop_syntax(text: str, line: int) -> str:
    """Return a Dockerfile for the daemon's own frontend; the other lines keep their numbers."""
    lines = text.split("\n")
    lines[line - 1] = "#"
    return "\n".join(lines)


def _directives(lines: Sequence[str]) -> Iterator[tuple[str, tuple[int, str]]]:
    for number, line in enumerate(lines, 1):
        found = _DIRECTIVE.fullmatch(line.strip())
        if found is None:
            return
        yield found[1].lower(), (number, found[2])


def _instructions(lines: Sequence[str], escape: str) -> Iterator[Instruction]:
    """Yield the instructions. Raises DockerfileError for a here-document without an end."""
    at = 0
    while at < len(lines):
        first, text = at, ""
        while at < len(lines):
            line, at = lines[at], at + 1
            if line.lstrip().startswith("#") or (text and not line.strip()):
                if not text:
                    break
                continue
            bare = line.rstrip(" \t")
            text += bare.removesuffix(escape) if bare.endswith(escape) else line
            if not bare.endswith(escape):
                break
        if not text.strip():
            continue
        keyword, options, rest = _split_instruction(text)
        ends = list(_here_documents(keyword, rest))
        for _, tabs, name in ends:
            begun = at
            while at < len(lines) and (lines[at].lstrip("\t") if tabs else lines[at]) != name:
                at += 1
            if at == len(lines):
                raise DockerfileError(f"line {begun}: the here-document {name} has no end")
            at += 1
        yield Instruction(first + 1, keyword, options, rest, max((one[0] for one in ends), default=None))


def _split_instruction(text: str) -> tuple[str, dict[str, str], str]:
    keyword, *more = text.strip().split(None, 1)
    rest = more[0] if more else ""
    options: dict[str, str] = {}
    while found := re.match(r"--([\w-]+)(?:=(\S*))?(?:\s+|$)", rest):
        name, value = found[1].lower(), found[2] or ""
        options[name] = f"{options[name]} {value}" if name in options else value
        rest = rest[found.end() :]
    return keyword.upper(), options, rest


def _here_documents(keyword: str, rest: str) -> Iterator[tuple[Version, bool, str]]:
    """Yield for each here-document of an instruction the first Docker daemon with it, whether its end may be indented
    by tabs, and the end."""
    if keyword == "ONBUILD":
        keyword, _, rest = _split_instruction(rest) if rest else ("", {}, "")
    if keyword in ("ADD", "COPY", "RUN"):
        words = _WORD.findall(rest)
        for word, after in zip(words, [*words[1:], ""], strict=True):
            spaced = word.lstrip("0123456789") == "<<"
            if found := _HERE.fullmatch(word + after if spaced else word):
                yield _SPACED_HERE_DOCUMENT if spaced else _HERE_DOCUMENT, bool(found[1]), found[3]


def _needs(one: Instruction) -> Iterator[Need]:
    keyword, options, rest = one.keyword, one.options, one.rest
    if keyword == "ONBUILD" and rest:
        keyword, options, rest = _split_instruction(rest)
    for option in options:
        if option not in _CLASSIC.get(keyword, {option}):
            yield Need(one.line, f"{keyword} --{option}", _SINCE.get(option, _HERE_DOCUMENT))
    if keyword == "ADD" and any(_GIT.match(word) for word in _WORD.findall(rest)):
        yield Need(one.line, "ADD of a git repository", _GIT_SINCE)
    if one.here is not None:
        yield Need(one.line, f"the here-document of {keyword}", one.here)
    if keyword in _OF_PLATFORM and (found := _OF_PLATFORM[keyword].search(" ".join([*options.values(), rest]))):
        yield Need(one.line, f"{keyword} {found[0].strip()}", BUILDKIT)


def _expand_variables(text: str, known: Mapping[str, str]) -> str:
    """Return a text with its variables filled in, if they are known or have a default in it."""

    def one(found: re.Match[str]) -> str:
        return known.get(found[1] or found[2]) or found[3] or found[0]

    return _VARIABLE.sub(one, text) if len(text) <= _LONGEST else text
