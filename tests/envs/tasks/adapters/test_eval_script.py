"""What a SWE-bench row's own script sets before it runs the tests."""

from envs.tasks.adapters.eval_script import conda_environment, exports

SCRIPT = """#!/bin/bash
set -uxo pipefail
source /opt/miniconda3/bin/activate
conda activate astro
cd /testbed
export PYTHONPATH=/testbed/lib:$PYTHONPATH
export LANG=en_US.UTF-8;
git apply -v - <<'EOF_1'
+export EVIL=1
+conda activate other
EOF_1
: '>>>>> Start Test Output'
PYTHONWARNINGS='ignore::UserWarning' LC_ALL=C pytest -rA tests/test_a.py
: '>>>>> End Test Output'
export LATER=1
"""


def test_exports_and_the_commands_own_variables_are_found():
    assert exports(SCRIPT) == [
        "export PYTHONPATH=/testbed/lib:$PYTHONPATH",
        "export LANG=en_US.UTF-8",
        "export PYTHONWARNINGS='ignore::UserWarning' LC_ALL=C",
    ]
    assert exports("cd /testbed\n: '>>>>> Start Test Output'\npytest -rA\n") == []
    assert exports("") == []


def test_the_conda_environment_is_the_one_that_is_activated():
    assert conda_environment(SCRIPT) == "astro"
    assert conda_environment("source /opt/miniconda3/bin/activate\nconda activate base\n") is None
    assert conda_environment("pytest") is None
