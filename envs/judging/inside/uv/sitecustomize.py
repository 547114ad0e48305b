"""Found by PYTHONPATH: the Pythons of uv's own environments have no `verifier_hook.pth`."""

import sys

sys.path.insert(0, "/verifier")
import verifier_hook  # noqa: F401

sys.path.remove("/verifier")
