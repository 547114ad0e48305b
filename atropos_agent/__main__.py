"""`python -m atropos_agent`, and the command `atropos-agent`: the same as `python -m envs.swe`.

Like it, the command finds modules of the working directory. If a package of the user's is named `envs`, it reports the
conflict.
"""

from __future__ import annotations

import signal
import sys
from importlib import import_module

from sandboxes.shadowing import check_packages


def command() -> int:
    """Run the command of this process. Returns the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what is imported first is nothing that a traceback would explain
    if not sys.flags.safe_path:
        sys.path.append("")  # `python -m` has it first; after the others it hides nothing
    try:
        check_packages("envs", "tools", "sandboxes")
    except ImportError as error:
        print(error, file=sys.stderr)
        return 2
    # By name: environments stand above this package, and it knows none of them.
    return int(import_module("envs.swe.__main__").command())


if __name__ == "__main__":
    sys.exit(command())
