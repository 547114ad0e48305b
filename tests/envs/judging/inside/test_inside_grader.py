"""What a grader of root's may do with what was judged: read it."""

import io
import marshal
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest


@pytest.fixture
def grade(tmp_path):
    """Runs lines as a grader, beside a working directory of the agent's."""
    import supervise

    inside = tmp_path / "verifier"
    inside.mkdir()
    source = (Path(supervise.__file__).parent / "grader.py").read_text()
    (inside / "grader.py").write_text(source.replace('TESTS = "/tests"', f'TESTS = "{tmp_path}/tests"'))
    tree = tmp_path / "app"
    tree.mkdir()
    (inside / "workdir").symlink_to(tree)
    (tree / "solution.py").write_text("print('judged')\n")
    (tree / "json.py").write_text("print('judged')\n")
    (tree / "out.json").write_text("[42]")
    (tree / "evil").write_bytes(pickle.dumps(subprocess.run))
    (tree / "code").write_bytes(marshal.dumps(compile("print('judged')", "x", "exec")))
    (tree / "dotted").write_bytes(b"\x80\x04\x8c\x07pathlib\x8c\x07os.walk\x93.")
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
        "x = open('out.json').read(); exec(compile('y = abs(-42)', '', 'exec')); print([y])",
        "x = open('out.json').read(); exec(compile('y = abs(-42)', 'expected', 'exec')); print([y])",
        "x = open('out.json').read(); import colorsys, wave; print(x)",
        "import collections; open('solution.py').read(); collections.namedtuple('A', 'b'); print([42])",
    ],
)
def test_a_grader_reads_what_was_made(grade, line):
    assert grade(line).stdout == "[42]\n"


@pytest.mark.parametrize(
    "line",
    [
        "import ast; assert ast.walk(ast.parse(text))",
        "import tokenize; assert list(tokenize.generate_tokens(open('solution.py').readline))",
        "import csv, statistics, decimal, difflib, tempfile, subprocess, xml.etree.ElementTree",
        "import sqlite3; assert sqlite3.connect(':memory:').execute('select 42').fetchall() == [(42,)]",
        "import dataclasses, enum; dataclasses.make_dataclass('D', ['x'])(1); enum.Enum('E', 'a b').a",
        "import typing; typing.NamedTuple('T', [('a', int)])(1)",
        "import timeit, doctest; timeit.timeit('1 + 1', number=3)",
        "assert eval('lambda a, b: a + b')(1, 2) == 3",
        "scope = {}; exec(compile('def root(c): return c * 2', '<template>', 'exec'), scope); scope['root'](21)",
        "import concurrent.futures as c; assert c.ThreadPoolExecutor(1).submit(abs, -1).result() == 1",
        "import asyncio; assert asyncio.run(asyncio.sleep(0, 42)) == 42",
        "import ctypes; assert ctypes.CDLL(None).getpid() > 0",
        "import copy, datetime, re; copy.deepcopy({'day': datetime.date(2020, 1, 1), 'is': re.compile('a')})",
        "import subprocess; assert subprocess.run(['true']).returncode == 0",
        "import importlib.metadata, inspect, locale, logging, argparse, http.server, urllib.request",
        "import unittest, io; unittest.TextTestRunner(stream=io.StringIO()).run(unittest.TestSuite())",
        "import sys; sys.path.insert(0, '../tests'); import helper; assert helper.right(42)",
        "import runpy; assert runpy.run_path('../tests/helper.py')['right'](42)",
        "exec(open('../tests/helper.py').read()); assert right(42)",
    ],
)
def test_whatever_a_grader_does_behind_what_it_reads(grade, tmp_path, line):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/helper.py").write_text("def right(value):\n    return value == 42\n")
    ran = grade(f"text = open('solution.py').read(); {line}")
    assert (ran.returncode, ran.stderr) == (0, "")


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
        "import marshal; exec(marshal.load(open('code', 'rb')))",
        "import marshal; exec(marshal.loads(open('code', 'rb').read()))",
        "eval('(lambda: ' + open('solution.py').read().strip() + ')()')",
        "import subprocess as s; eval(s.check_output(['cat', 'solution.py'], text=True).upper().lower())",
        "import subprocess as s, pickle; pickle.loads(s.check_output(['cat', 'evil']))(['echo', 'judged'])",
        "import pickle; pickle.load(open('dotted', 'rb'))",
    ],
)
def test_a_grader_runs_none_of_it(grade, line):
    ran = grade(line)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "Error" in ran.stderr


@pytest.mark.parametrize(
    "way", ["t.extractall('out')", "shutil.unpack_archive('made.tar', 'out')", "[t.extract(m, 'out') for m in t]"]
)
@pytest.mark.parametrize("filters", ["", "del tarfile.data_filter; "])
def test_a_grader_unpacks_an_archive_in_its_place(grade, tmp_path, way, filters):
    with tarfile.open(tmp_path / "app/made.tar", "w") as archive:
        for name in (
            "inner/a",
            str(tmp_path / "planted"),
            "../../planted",
            "/tests/planted",
            str(tmp_path / "verifier/x"),
        ):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    grade(f"import shutil, tarfile; {filters}t = tarfile.open('made.tar'); {way}")
    assert (tmp_path / "app/out/inner/a").is_file()
    assert not list((tmp_path / "verifier").glob("x"))
    assert bool(filters) == (tmp_path / "planted").exists()
