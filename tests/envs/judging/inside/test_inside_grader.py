"""What a grader of root's may do with what was judged: read it."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def grade(tmp_path):
    """Runs lines as a grader, beside a working directory of the agent's."""
    import supervise

    inside = tmp_path / "verifier"
    inside.mkdir()
    (inside / "grader.py").write_text((Path(supervise.__file__).parent / "grader.py").read_text())
    tree = tmp_path / "app"
    tree.mkdir()
    (inside / "workdir").symlink_to(tree)
    (tree / "solution.py").write_text("print('judged')\n")
    (tree / "json.py").write_text("print('judged')\n")
    (tree / "out.json").write_text("[42]")
    (tree / "evil").write_bytes(pickle.dumps(subprocess.run))
    (tree / "good").write_bytes(pickle.dumps({"a": [42]}))

    def run(line):
        code = tmp_path / "code"
        code.write_text(line)
        program = [sys.executable, "-s", str(inside / "grader.py"), "code", str(code)]
        return subprocess.run(program, cwd=tree, capture_output=True, text=True, check=False)

    return run


@pytest.mark.parametrize(
    "line",
    [
        "import json; print(json.load(open('out.json')))",
        "print(eval(open('out.json').read()))",
        "import ast, dataclasses as d; x=ast.literal_eval(open('out.json').read());d.make_dataclass('A','b'); print(x)",
        "import pickle; print(pickle.load(open('good', 'rb'))['a'])",
        "import collections; open('solution.py').read(); collections.namedtuple('A', 'b'); print([42])",
    ],
)
def test_a_grader_reads_what_was_made(grade, line):
    assert grade(line).stdout == "[42]\n"


@pytest.mark.parametrize(
    "line",
    [
        "import solution",
        "import sys; sys.path.insert(0, '.'); import solution",
        "import os, sys; sys.path.insert(0, os.getcwd()); import solution",
        "import runpy; runpy.run_path('solution.py')",
        "exec(open('solution.py').read())",
        "exec(compile(open('solution.py').read(), 'x', 'exec'))",
        "from importlib.machinery import SourceFileLoader; SourceFileLoader('solution', 'solution.py').load_module()",
        "import pickle; pickle.load(open('evil', 'rb'))(['echo', 'judged'])",
        "import ctypes; ctypes.CDLL('./solution.py')",
    ],
)
def test_a_grader_runs_none_of_it(grade, line):
    ran = grade(line)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "Error" in ran.stderr
