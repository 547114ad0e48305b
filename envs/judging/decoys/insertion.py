"""The hidden tests as the sandbox gets them: their own text, with decoys beside the expected values."""

from __future__ import annotations

import ast
import contextlib
import functools
import logging
import random
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from envs.judging.decoys.key import Key
from envs.judging.decoys.sets import Decoys, looked_for, vocabulary
from envs.judging.decoys.sites import plant
from envs.judging.decoys.source_tests import SourceTests
from envs.judging.decoys.text import Text, Unplantable

logger = logging.getLogger(__name__)

_ONE = threading.Lock()
_TRIES = 3
"""How often syntax is made again: Python counts how deep it is for all threads together, and may lose count."""


@dataclass(frozen=True, slots=True)
class DecoyedTests:
    """Modules of tests among decoys.

    texts: the text of each, by path; the unchanged content if this Python can't read it. key: the expected values.
    source: the tests as they were written.
    """

    texts: Mapping[str, bytes]
    key: Key
    source: SourceTests


def insert_decoys(modules: Mapping[str, bytes], failing: frozenset[str] = frozenset()) -> DecoyedTests:
    """Put the tests' expected values among decoys, the same each time for the same tests.

    modules: the sources, by absolute path in the sandbox. failing: ids of tests that must not pass, and so stay as
    they are.
    """
    known = tuple(sorted(modules.items()))
    with _ONE:  # the same tests get their decoys once, however many rollouts of their task are judged at the same time
        for _ in range(_TRIES):
            with contextlib.suppress(SystemError):
                return _inserted(known, failing)
        return _inserted(known, failing)


@functools.lru_cache(maxsize=256)
def _inserted(modules: tuple[tuple[str, bytes], ...], failing: frozenset[str]) -> DecoyedTests:
    # What is common to two draws of a set would tell which of its values is expected: there is one draw in a process.
    texts, found, key = {}, dict(modules), Key()
    for path, data in modules:
        try:
            texts[path] = Text(data, path)
        except Unplantable as error:
            logger.debug("no decoys in %s: %s", path, error)
    source = SourceTests({path: text.tree for path, text in texts.items()}, found)
    trees = [text.tree for text in texts.values()]
    decoys = Decoys(random.SystemRandom(), vocabulary(trees), looked_for(trees))
    spared: dict[str, set[str]] = {path: set() for path in texts}
    for where, name in (one for test in failing for one in source.of(test)):
        spared[where].add(name)
    for path, text in texts.items():
        try:
            plant(path, text, key, decoys, spared[path])
            found[path] = text.edited()
            _check(found[path], path)
        except SystemError:
            raise
        except Exception as error:  # ours: the tests are judged as they are
            logger.warning("no decoys in %s: %s: %s", path, type(error).__name__, error)
            key.forget(path)
            found[path] = dict(modules)[path]
    return DecoyedTests(found, key, source)


def _check(source: bytes, path: str) -> None:
    """Raise SyntaxError if our additions to a module broke it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(source, path)
