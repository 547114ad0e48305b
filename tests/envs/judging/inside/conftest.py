"""What runs inside the verifier's sandbox imports its neighbours by their bare names, so its tests do too."""

import sys
from pathlib import Path

import envs.judging

INSIDE = Path(envs.judging.__file__).parent / "inside"
sys.path.append(str(INSIDE))
