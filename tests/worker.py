"""Stands in for Python where pytest-xdist starts a worker: `--tx "6*popen//python=python tests/worker.py"`.

The worker is forked from a process that has imported the test files, so that what all workers import is imported once.
"""

import sys

from programs import stand_in

if __name__ == "__main__":
    sys.exit(stand_in(sys.argv[sys.argv.index("-c") :]))
