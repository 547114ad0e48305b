"""`python -m envs ENVIRONMENT COMMAND`: the command line of any environment, by its dotted path.

`python -m envs package.module:name serve` runs a class or a function of one's own; `python -m envs swe serve` is the
same as `python -m envs.swe serve`.
"""

from __future__ import annotations

import signal
import sys

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is imported first is nothing that a traceback would explain

from envs.swe.__main__ import main as swe
from envs.swe.__main__ import said


def main(argv: list[str]) -> int:
    """Run a command of an environment. Returns the exit status."""
    if not argv or argv[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if argv else 2
    name, *rest = argv
    if name == "swe":
        return swe(rest)
    from envs.cli import load_environment, run
    from envs.options import UsageError
    from envs.running.stopping import ended_while_loading

    try:
        with ended_while_loading():
            print(f"loading {name} …", file=sys.stderr)
            env_cls = load_environment(name)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    return run(env_cls, rest, prog=f"python -m envs {name}")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(said(main, sys.argv[1:]))
