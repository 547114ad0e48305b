"""Programs get the arguments that the preload library keeps from /proc, with either C library."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

LIBRARY = Path(__file__).parent.parent.parent / "envs/judging/inside/preload-amd64.so"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the library is this processor's")
@pytest.mark.parametrize("compiler", ["gcc", "musl-gcc"])
def test_a_program_gets_its_arguments_from_variables_and_does_not_see_these(tmp_path, compiler):
    if not shutil.which(compiler):
        pytest.skip(f"needs {compiler}")
    program = tmp_path / "program"
    subprocess.run([compiler, "-o", program, Path(__file__).parent / "hidden_arguments.c"], check=True)
    env = {"LD_PRELOAD": os.fspath(LIBRARY)}
    ran = subprocess.run([program, "again"], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout == "<one><><th=ree> A=1\n"
    ran = subprocess.run([program, "left", "as", "they are"], env=env, capture_output=True, text=True, check=True)
    assert ran.stdout == "<left><as><they are>\n"
