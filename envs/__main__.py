"""`python -m envs ENVIRONMENT COMMAND`: the command line of any environment, by its dotted path.

`python -m envs package.module:name serve` runs a class or a function of one's own; `python -m envs swe serve` is the
same as `python -m envs.swe serve`.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is imported first is nothing that a traceback would explain

from envs.messages import run_main
from envs.swe.__main__ import main as swe
from sandboxes.naming import lazy_import

_RUN = lazy_import("envs.cli.program:run_named")


def main(argv: Sequence[str]) -> int:
    """Run a command of an environment. Returns the exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if argv else 2
    name, *rest = argv
    if name in ("swe", "--version"):
        return swe(argv if name == "--version" else rest)
    return int(_RUN()(name, rest))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run_main(main, sys.argv[1:]))
