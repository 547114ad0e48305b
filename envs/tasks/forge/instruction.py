"""The instruction of a forged task: the symptoms and the documented behaviour, never the place or the cause."""

from __future__ import annotations

import ast
import inspect
import random
import textwrap
from collections.abc import Iterator

from envs.tasks.forge.emit import Bug, ForgedTask
from envs.tasks.forge.suite import WORKDIR, failure_summary

_SHOWN_FAILURES = 3
_OPENINGS = (
    "{name}, whose source is in {place}, no longer does what it should.",
    "Users report that {name} misbehaves since the last release. Its source is in {place}.",
    "Some of the tests of {name} fail. The source is in {place}; the tests that fail aren't part of it.",
    "A regression has crept into {name} ({place}).",
)
_CLOSINGS = (
    "Please find the cause and correct the library. Whether it works is judged by the project's full test suite.",
    "Fix the library code. All of the project's tests, also those not shown here, must pass afterwards.",
    "Make it work again, without changing what is right today. Hidden tests will judge the result.",
)


def write_instruction(task: ForgedTask, seed: int) -> str:
    """Return the text in Markdown; the same seed gives the same text."""
    chance = random.Random(f"{seed} {task.id}")
    seen: dict[str, str] = {}
    for name in sorted(task.fail_to_pass):
        seen.setdefault(failure_summary(task.fail_to_pass[name]), name)
    shown = [text for text in seen if text]
    chance.shuffle(shown)
    failures = len(task.fail_to_pass)
    parts = [
        chance.choice(_OPENINGS).format(name=task.project.name, place=WORKDIR),
        f"{failures} {'check fails' if failures == 1 else 'checks fail'}. What is observed:",
        *(textwrap.indent(text, "    ") for text in shown[:_SHOWN_FAILURES]),
    ]
    for function, text in _documented_functions(task.bugs):
        parts += [f"`{function}` is documented like this:", textwrap.indent(text, "> ", lambda line: True)]
    return "\n\n".join([*parts, chance.choice(_CLOSINGS)]) + "\n"


def _documented_functions(bugs: tuple[Bug, ...]) -> Iterator[tuple[str, str]]:
    """Yield touched public functions, or else their classes, with the first paragraph of their docstrings."""
    seen = set()
    for bug in bugs:
        docstrings = dict(_docstrings(ast.parse(bug.original), ()))
        for mutation in bug.mutations:
            names = mutation.function.split(".")
            while names and (any(name.startswith("_") for name in names) or ".".join(names) not in docstrings):
                names.pop()
            function = ".".join(names)
            if function and function not in seen:
                seen.add(function)
                yield function, docstrings[function].split("\n\n")[0].strip()


def _docstrings(node: ast.AST, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            path = (*names, child.name)
            if text := ast.get_docstring(child):
                yield ".".join(path), inspect.cleandoc(text)
            yield from _docstrings(child, path)
        else:
            yield from _docstrings(child, names)
