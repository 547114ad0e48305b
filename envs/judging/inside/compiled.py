"""Modules of tests for other processes that the tests start, which import them by their names.

Where pools of processes are not forked (`spawn`, `forkserver`), what they are to call is looked up in a module that
judged code can't read. Python takes compiled code that says it need not be checked, without a look at the source. It is
the code that is handed on, with decoys. What its asserts come to there is not told, and not asked for.

Runs in the verifier's sandbox, in root's process, on any Python from 3.7; before that nothing is written.
"""

import importlib.util
import marshal
import os
import re
import sys

from probe import PROBE
from processes import HERE, TESTS, open_below

_POOLS = re.compile(rb"multiprocessing|ProcessPool|concurrent\.futures|joblib|loky")
_UNCHECKED = (1).to_bytes(4, "little") + bytes(8)
_PROGRAM = """\
import marshal
if %r not in globals():
    made = {}
    exec(%r, made)
    globals()[%r] = made["Probe"](lambda *told: None)
    del made
exec(marshal.loads(%r), globals())
"""


def leave(path, source, code):
    """Leave a module's compiled code where Python looks for it, if its tests may start such processes. It must be one
    of /tests: elsewhere judged code can make files."""
    if sys.version_info < (3, 7) or not path.startswith(TESTS + "/") or not _POOLS.search(source):
        return
    with open(HERE + "/probe.py") as file:
        program = _PROGRAM % (PROBE, file.read(), PROBE, code)
    place = importlib.util.cache_from_source(path)
    try:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.chmod(os.path.dirname(place), 0o755)
        folder = open_below(TESTS, os.path.dirname(place))
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            number = os.open(os.path.basename(place), flags, 0o644, dir_fd=folder)
        finally:
            os.close(folder)
        with os.fdopen(number, "wb") as file:
            file.write(importlib.util.MAGIC_NUMBER + _UNCHECKED + marshal.dumps(compile(program, path, "exec")))
    except OSError:
        pass  # /tests can't be written
