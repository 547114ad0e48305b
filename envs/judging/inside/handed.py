"""The modules of tests as they are handed on: compiled, with what they expect among decoys.

Runs in the verifier's sandbox, in root's process, on any Python from 3.6.
"""

import ast
import collections
import marshal
import os
import pickle
import random
import re
import warnings

import sites
from decoys import Decoys, looked_for, vocabulary
from literals import children
from processes import TESTS, is_original, within
from reporter import rewrite

_BY_ID = re.compile(
    r"nodeid|callspec|\.originalname|item\.name|node\.name|request\.node|PYTEST_CURRENT_TEST|tmp_path\.name|tmpdir\.basename"
)
"""How code speaks of tests by their ids."""


def handed_on(written, key, root, args, spared, readable=False, kept=os.devnull):
    """Put what tests expect among decoys. Yield what is handed on of each module, in the order of `written.files`.

    args: the runner's. spared: {path: tests that stay as they are, since they must fail}. readable: whether judged code
    can read the modules. kept: the file in which the sets of a sandbox are kept from run to run.
    """
    trees = [tree for tree in written.trees.values() if not isinstance(tree, str)]
    decoys = Decoys(random.SystemRandom(), vocabulary(trees), looked_for(trees), _known(kept))
    configuring = [text.decode("utf-8", "replace") for text in _neighbours(written.files, root)]
    spoken = {name for text in configuring for name in re.findall(r"[A-Za-z_]\w*", text)}
    renaming = not any("[" in arg or arg.startswith("-k") for arg in args)
    renaming = renaming and not any(_BY_ID.search(text) for text in configuring)
    mentioned = {path: set(re.findall(rb"[A-Za-z_]\w*", source)) for path, source in written.sources.items()}
    common = collections.Counter(name for names in mentioned.values() for name in names)
    for path in written.files:
        tree, source = written.trees[path], written.sources[path]
        if isinstance(tree, str):
            yield marshal.dumps(tree)
            continue
        shared = spoken | {name.decode() for name in mentioned[path] if common[name] > 1}
        renamed = renaming and not _BY_ID.search(source.decode("utf-8", "replace"))
        try:
            sites.plant(path, tree, key, decoys, shared, renamed, spared[path])
            yield _compiled(path, tree, source, readable)
        except Exception as error:  # ours: the tests are judged as they are
            print("verifier: no decoys in %s: %r" % (path, error))
            key.forget(path)
            yield _compiled(path, ast.parse(source, path), source, readable)
    with open(kept, "wb") as file:
        pickle.dump(decoys.known, file)


def _known(path):
    """Return what earlier runs drew; None for the first."""
    try:
        with open(path, "rb") as file:
            return pickle.load(file)
    except (OSError, EOFError):
        return None


def _compiled(path, tree, source, readable):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rewrite(tree, source)
        _place(tree, readable)
        return marshal.dumps(compile(tree, path, "exec", dont_inherit=True))


def _place(tree, readable):
    """Give what was put into the tree the line of what is around it. Leave of all other places the lines alone, if the
    source can't be read: how long what is expected was written tells which of a set it is."""
    found = [(tree, 1)]
    for node, line in found:
        known = vars(node)
        line = known.get("lineno", line)
        if "lineno" in node._attributes and not (readable and "lineno" in known):
            known.update(lineno=line, col_offset=0, end_lineno=line, end_col_offset=0)
        for below in children(node):
            found.append((below, line))


def _neighbours(files, root):
    """Yield the sources of what configures the tests: each conftest.py, and modules of /tests that it names."""
    folders = {root}
    for path in files:
        while len(path) > 1 and path != root:
            path = os.path.dirname(path)
            folders.add(path)
    for folder in folders:
        places = (folder, TESTS) if within(folder, TESTS) else (TESTS,)
        for text in _read(folder + "/conftest.py"):
            yield text
            words = sorted(set(re.findall(rb"[A-Za-z_]\w*", text)))
            for path in ["%s/%s.py" % (place, word.decode()) for place in places for word in words]:
                yield from _read(path) if is_original(path) else ()


def _read(path):
    try:
        with open(path, "rb") as file:
            yield file.read()
    except OSError:
        pass
