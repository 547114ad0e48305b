"""Stands in for Python where pytest-xdist starts a worker: `--tx "6*popen//python=python tests/worker.py"`.

The worker is forked from the process that programs are forked from, so that what all of them import is imported once.
"""

import sys

from programs import stand_in

if __name__ == "__main__":
    sys.exit(stand_in(sys.argv[sys.argv.index("-c") :]))
