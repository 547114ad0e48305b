"""This process's limits."""

import json
import subprocess
import sys

SCRIPT = """
import json, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(hard, 1000)))
from envs.running.limits import raise_open_files
raise_open_files()
print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))
"""


def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [1000, 1000]
