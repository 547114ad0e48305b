"""Made-up terminal tasks with their solutions, and transcripts of an expert who solves them.

They teach a small model the format of calls before any reinforcement learning. Names, texts and
phrasings are other ones than those of the starter pack, and a part of its kinds of task does not
occur here at all, so that the starter pack still measures something.
"""

# ruff: noqa: SIM905 - word lists are easier to read as text

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atropos_agent.agent import AtroposAgent
from atropos_agent.formats.hermes import CALL, CALL_END
from atropos_agent.scripted import ScriptedServer
from atropos_agent.template import ChatTemplate
from atropos_agent.types import AgentConfig, SequenceData
from sandboxes.base import Sandbox, SandboxSpec
from sandboxes.local import LocalBackend
from tools import default_tools

TOOLS = ("terminal", "submit")
"""The tools that transcripts show and use."""

WORKING_DIR = "/app"
"""Named in the prompts, as in the starter pack's image."""


@dataclass(frozen=True, slots=True)
class Example:
    """A task with its solution. `files` are there at the start, by relative path."""

    kind: str
    instruction: str
    command: str
    files: Mapping[str, str] = field(default_factory=dict)
    directories: Sequence[str] = ()


def examples(count: int, seed: int, kinds: Sequence[str] = ()) -> list[Example]:
    """`count` tasks, the kinds by turns, the same for the same seed. kinds: all when empty, the harder ones twice."""
    rng = random.Random(seed)
    makers = [_KINDS[kind] for kind in kinds or (*_KINDS, *_HARDER)]
    return [makers[i % len(makers)](_Draw(rng)) for i in range(count)]


def kinds() -> list[str]:
    """The kinds of task that are made here."""
    return list(_KINDS)


def expert(task: Example) -> list[str]:
    """The replies of one who solves the task."""
    return [call("terminal", command=task.command), call("submit")]


async def transcripts(
    tasks: Sequence[Example], tokenizer: Any, replies: Callable[[Example], Sequence[str]] = expert
) -> AsyncIterator[SequenceData]:
    """A row of tokens for each task: its prompt, the replies and what the tools really answered.
    Only the replies are trained. Raises RuntimeError when an expert's solution fails."""
    template = ChatTemplate(tokenizer)
    async with LocalBackend() as backend:
        for task in tasks:
            async with backend.open(SandboxSpec("", workdir=WORKING_DIR)) as sandbox:
                await _prepare(task, sandbox)
                server = ScriptedServer(replies(task), tokenizer)
                config = AgentConfig(working_dir=WORKING_DIR, max_tokens=512)
                agent = AtroposAgent(server, default_tools(sandbox, TOOLS), config, template=template)
                result = await agent.run(task.instruction)
                for output in result.steps[0].results if replies is expert else ():
                    if output.metadata["exit_code"] != 0:
                        raise RuntimeError(f"{task.command!r} failed for {task.instruction!r}: {output.content}")
                (row,) = result.segments
                yield row


def call(name: str, **arguments: Any) -> str:
    """A reply that makes one call."""
    return f"{CALL}\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n{CALL_END}"


async def _prepare(task: Example, sandbox: Sandbox) -> None:
    for name in task.directories:
        await sandbox.exec(["mkdir", "-p", name])
    for name, text in task.files.items():
        await sandbox.write_file(name, text.encode())


_STEMS = (
    "alpha bridge canyon delta ember falcon garden harbor island jacket kettle lantern meadow nectar orchid pepper "
    "quartz ribbon saddle temple umbrella valley willow yellow zephyr anchor basket candle dragon engine"
).split()
_ENDINGS = "txt md dat text lst rst out tmp doc asc".split()
_DIRECTORIES = "drawer cellar attic shelf wagon office studio vault depot barn tower hall".split()
_WORDS = (
    "maple river stone cloud tiger piano coffee silver winter rocket marble forest planet window bottle engineer "
    "pencil thunder velvet walnut copper dolphin summer jungle castle mirror guitar orange desert ocean"
).split()
_PHRASES = (
    "see you tomorrow|the train leaves at nine|good morning|all tests passed|water the plants|status=open|"
    "version 3.1|call the office|timeout=45|happy birthday|meeting at noon|level: high|open the door|"
    "key=value|nothing to report|read me first|name: Ada|total 1200|the end|mode=fast|lock the gate"
).split("|")
_ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


class _Draw:
    """Names and texts, none of them twice in one task."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._stems = rng.sample(_STEMS, 8)
        self._directories = rng.sample(_DIRECTORIES, 4)
        self._words = rng.sample(_WORDS, len(_WORDS))
        self._phrases = rng.sample(_PHRASES, 8)

    def file(self) -> str:
        return f"{self._stems.pop()}.{self.rng.choice(_ENDINGS)}"

    def directory(self) -> str:
        return self._directories.pop()

    def word(self) -> str:
        return self._words.pop()

    def phrase(self) -> str:
        return self._phrases.pop() if self.rng.random() < 0.6 else f"{self.word()} {self.word()}"

    def lines(self, low: int = 4, high: int = 8) -> str:
        return "".join(f"{self.word()}\n" for _ in range(self.rng.randint(low, high)))

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)


def _create_file(draw: _Draw) -> Example:
    file, text = draw.file(), draw.phrase()
    instruction = draw.pick(
        f"Make a file called {file} with the text: {text}",
        f"Put the text {text} into the new file {file}",
        f"I need a file {file}. It should say: {text}",
        f"Save the line {text} in {file}, which does not exist yet",
    )
    return Example("create_file", instruction, f"echo '{text}' > {file}")


def _create_lines(draw: _Draw) -> Example:
    file, first, second = draw.file(), draw.word(), draw.word()
    instruction = draw.pick(
        f"Make a file called {file}. Line one is {first}, line two is {second}.",
        f"I need a file {file} with {first} in its first line and {second} in its second.",
    )
    return Example("create_file", instruction, f"echo '{first}' > {file} && echo '{second}' >> {file}")


def _create_empty(draw: _Draw) -> Example:
    file = draw.file()
    instruction = draw.pick(
        f"Make the file {file} without any content",
        f"I need {file} as a file of size zero",
        f"Add a file {file} with nothing in it",
    )
    return Example("create_empty_file", instruction, f"touch {file}")


def _append_line(draw: _Draw) -> Example:
    file, text = draw.file(), draw.phrase()
    instruction = draw.pick(
        f"Put {text} as a new last line into {file}",
        f"{file} needs one more line at its end: {text}",
        f"Extend {file} by the line {text}",
        f"Append this to {file}: {text}",
        f"At the end of {file}, add {text}",
    )
    return Example("append_line", instruction, f"echo '{text}' >> {file}", {file: draw.lines()})


def _copy_file(draw: _Draw) -> Example:
    source, target = draw.file(), draw.file()
    instruction = draw.pick(
        f"Make a copy of {source} called {target}",
        f"Duplicate {source} as {target}",
        f"I want the content of {source} in a second file, {target}",
    )
    return Example("copy_file", instruction, f"cp {source} {target}", {source: draw.lines()})


def _copy_into(draw: _Draw) -> Example:
    source, target = draw.file(), draw.directory()
    instruction = draw.pick(
        f"Put a copy of {source} into the folder {target}",
        f"The folder {target} should hold a copy of {source}",
        f"Copy {source} to the folder {target}",
    )
    return Example("copy_file", instruction, f"cp {source} {target}/", {source: draw.lines()}, [target])


def _rename_file(draw: _Draw) -> Example:
    source, target = draw.file(), draw.file()
    instruction = draw.pick(
        f"Give {source} the new name {target}",
        f"{source} should be called {target} from now on",
        f"Change the name of {source} into {target}",
    )
    return Example("rename_file", instruction, f"mv {source} {target}", {source: draw.lines()})


def _move_file(draw: _Draw) -> Example:
    source, target = draw.file(), draw.directory()
    instruction = draw.pick(
        f"{source} belongs into the folder {target}; put it there",
        f"Shift {source} to the folder {target}",
        f"Take {source} and place it in {target}",
    )
    return Example("move_file", instruction, f"mv {source} {target}/", {source: draw.lines()}, [target])


def _delete_file(draw: _Draw) -> Example:
    file, other = draw.file(), draw.file()
    instruction = draw.pick(
        f"Get rid of {file}", f"{file} is not needed any more, remove it", f"Erase {file} but nothing else"
    )
    return Example("delete_file", instruction, f"rm {file}", {file: draw.lines(), other: draw.lines()})


def _delete_directory(draw: _Draw) -> Example:
    directory, file = draw.directory(), draw.file()
    instruction = draw.pick(
        f"Get rid of the folder {directory} with all its content", f"Erase the whole folder {directory}"
    )
    return Example("delete_directory", instruction, f"rm -r {directory}", {f"{directory}/{file}": draw.lines()})


def _make_directory(draw: _Draw) -> Example:
    path = "/".join(draw.directory() for _ in range(draw.rng.choice((1, 1, 2, 3))))
    instruction = draw.pick(
        f"I need a folder {path}", f"Set up the folder {path}", f"Add a new folder: {path}", f"Create the folder {path}"
    )
    return Example("make_directory", instruction, f"mkdir -p {path}")


def _count_lines(draw: _Draw) -> Example:
    file, target = draw.file(), draw.file()
    instruction = draw.pick(
        f"How many lines does {file} have? Store the number, and nothing else, in {target}",
        f"Save the number of lines in {file} as {target}",
        f"{target} should say how many lines {file} has",
        f"Count how many lines there are in {file}; the result goes to {target}",
    )
    return Example("count_lines", instruction, f"wc -l < {file} > {target}", {file: draw.lines()})


def _sort_file(draw: _Draw) -> Example:
    file, target = draw.file(), draw.file()
    instruction = draw.pick(
        f"Bring the lines of {file} into alphabetical order and store the result as {target}",
        f"{target} should hold the lines of {file} in sorted order",
        f"Sort {file} and save the result as {target}",
    )
    return Example("sort_file", instruction, f"sort {file} > {target}", {file: draw.lines()})


def _replace_word(draw: _Draw) -> Example:
    file, old, new, other = draw.file(), draw.word(), draw.word(), draw.word()
    instruction = draw.pick(
        f"Every {old} in {file} should become {new}",
        f"Swap the word {old} for {new} throughout {file}",
        f"{file} says {old} in several places; it should say {new}",
        f"Change all occurrences of {old} in {file} to {new}",
        f"Replace the word {old} by {new} in the whole of {file}",
    )
    text = f"{old}\n{other}\n{old} and {other}\n"
    return Example("replace_word", instruction, f"sed -i 's/{old}/{new}/g' {file}", {file: text})


def _find_file(draw: _Draw) -> Example:
    file, target, path = draw.file(), draw.file(), f"{draw.directory()}/{draw.directory()}"
    instruction = draw.pick(
        f"Somewhere in here lies {file}. Store its path in {target}", f"Where is {file}? Save the path as {target}"
    )
    return Example("find_file", instruction, f"find . -name {file} > {target}", {f"{path}/{file}": draw.lines()})


def _extract_line(draw: _Draw) -> Example:
    file, target, number = draw.file(), draw.file(), draw.rng.choice((1, 1, 2, 3, 4, 5, -1))
    if number == 1:
        which, command = draw.pick("top", "first"), f"head -n 1 {file} > {target}"
    elif number == -1:
        which, command = "last", f"tail -n 1 {file} > {target}"
    else:
        which, command = _ORDINALS[number], f"sed -n '{number}p' {file} > {target}"
    instruction = draw.pick(
        f"Store the {which} line of {file} in {target}",
        f"{target} should hold only the {which} line of {file}",
        f"Take the {which} line of {file} and save it as {target}",
    )
    return Example("extract_line", instruction, command, {file: draw.lines(6, 9)})


def _concatenate(draw: _Draw) -> Example:
    first, second, target = draw.file(), draw.file(), draw.file()
    instruction = draw.pick(
        f"Glue {first} and {second} together as {target}",
        f"{target} should hold the content of {first}, followed by that of {second}",
        f"Combine {first} and {second} to make {target}",
        f"First {first}, then {second}: put both into the new file {target}",
    )
    files = {first: draw.lines(), second: draw.lines()}
    return Example("concatenate", instruction, f"cat {first} {second} > {target}", files)


def _make_executable(draw: _Draw) -> Example:
    file = f"{draw.file().partition('.')[0]}.sh"
    instruction = draw.pick(f"{file} should be runnable as a program", f"Set the execute permission of {file}")
    return Example("make_executable", instruction, f"chmod +x {file}", {file: "#!/bin/sh\necho done\n"})


_KINDS: dict[str, Callable[[_Draw], Example]] = {
    "create_file": _create_file,
    "create_lines": _create_lines,
    "create_empty_file": _create_empty,
    "append_line": _append_line,
    "copy_file": _copy_file,
    "copy_into": _copy_into,
    "rename_file": _rename_file,
    "move_file": _move_file,
    "delete_file": _delete_file,
    "delete_directory": _delete_directory,
    "make_directory": _make_directory,
    "count_lines": _count_lines,
    "sort_file": _sort_file,
    "replace_word": _replace_word,
    "find_file": _find_file,
    "extract_line": _extract_line,
    "concatenate": _concatenate,
    "make_executable": _make_executable,
}

_HARDER = ("create_file", "append_line", "count_lines", "replace_word", "extract_line", "concatenate")
"""Kinds that come twice as often."""
