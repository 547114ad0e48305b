"""Solutions that are right and odd are rewarded, in whatever format the task is."""

import pytest
from task_formats import FORMATS, RIGHT, worked_on
from turns import share, share_or_all

WRITE = f"cat > solution.py << 'END'\n{RIGHT}END\n"
ODD = {
    "plain": WRITE,
    "a new module": f"{WRITE}mv solution.py inner.py; echo 'from inner import *' > solution.py",
    "a package in place of the module": f"{WRITE}mkdir p; mv solution.py p/__init__.py; mv p solution",
    "deletions": f"rm -rf solution.py; mkdir -p old; rm -r old; {WRITE}",
    "a rename by git": f"git init -q . 2>/dev/null; git add -A; {WRITE}mv solution.py renamed.py; git add -A; "
    "echo 'from renamed import *' > solution.py",
    "committed": f"git init -q . 2>/dev/null; {WRITE}git add -A; git -c user.name=a -c user.email=a@b.c commit -qm fix",
    "without .git": f"{WRITE}rm -rf .git",
    "binary files": f"{WRITE}head -c 100000 /dev/urandom > data.bin; printf '\\0\\1\\377' > zero",
    "build configuration": f"{WRITE}printf '[metadata]\\nname = x\\n' > setup.cfg; "
    'printf \'[project]\\nname = "x"\\n[tool.pytest.ini_options]\\naddopts = "-q"\\n\' > pyproject.toml; echo all: > Makefile',
    "CRLF": f"{WRITE}sed -i 's/$/\\r/' solution.py",
    "latin-1": f"{WRITE}(printf '# coding: latin-1\\n# \\351t\\351\\n'; cat solution.py) > s; mv s solution.py",
    "a byte order mark": f"{WRITE}(printf '\\357\\273\\277'; cat solution.py) > s; mv s solution.py",
    "names that are not UTF-8": f"{WRITE}touch $'caf\\351' $'new\\nline' ' space' -- '-dash'; mkdir $'d\\377'; echo 1 > $'d\\377/x'",
    "a folder like a submodule": f"{WRITE}mkdir -p sub; cd sub; git init -q .; mv ../solution.py inner_solution.py; "
    "touch __init__.py; git add -A; git -c user.name=a -c user.email=a@b.c commit -qm x; cd ..; "
    "echo 'from sub.inner_solution import *' > solution.py",
    "tests of its own": f"{WRITE}mkdir -p tests; printf 'from solution import double\\ndef test_mine():\\n"
    "    assert double(1) == 2\\n' > tests/test_mine.py; touch tests/__init__.py",
    "failing tests and a conftest of its own": f"{WRITE}echo 'def test_no(): assert 0' > test_no.py; "
    "printf 'import pytest\\n@pytest.fixture\\ndef one(): return 1\\n' > conftest.py",
    "mode bits": f"{WRITE}chmod 755 solution.py; echo '#!/bin/sh' > run; chmod 777 run",
    "links inside the tree": f"{WRITE}mv solution.py real.py; ln -s real.py solution.py; mkdir -p d; ln -s ../real.py d/l.py",
    "hard links": f"{WRITE}ln solution.py same.py",
    "a process left running": f"{WRITE}(setsid sleep 1000 > /dev/null 2>&1 &)",
    "words that cheats use": f"{WRITE}echo 'import pytest, atexit, os, sys  # os._exit conftest' >> solution.py",
    "output at import": f'{WRITE}echo \'print("FAILED x"); import sys; print("no", file=sys.stderr)\' >> solution.py',
    "a thread": f"{WRITE}printf 'import threading\\nthreading.Thread(target=lambda: None).start()\\n' >> solution.py",
    "a subprocess": "cat > solution.py << 'END'\nimport subprocess, sys, json\n"
    "def double(x):\n    code = 'import json,sys; x=json.load(sys.stdin); print(json.dumps(x*2))'\n"
    "    out = subprocess.run([sys.executable, '-c', code], input=json.dumps(x), capture_output=True, text=True)\n"
    "    return json.loads(out.stdout)\ndef same(x): return x\nEND\n",
    "modules named as the verifier's": f"{WRITE}for m in sites names key probe evidence reporter reports literals runner installed receiver outcome; do\n"
    'mv solution.py $m.py; echo "from $m import *" > solution.py; done',
    "tests of its own that fail, in the folder of the hidden ones": f"{WRITE}mkdir -p tests; "
    "echo 'def test_mine(): assert 0' > tests/test_mine.py",
    "files that nobody else may read": f"{WRITE}mkdir -p data; echo 1 > data/one; chmod 600 data/one; chmod 700 data",
    "bytecode left": f"{WRITE}python3 -c 'import solution'",
}


@pytest.mark.docker
@share_or_all(2)
@pytest.mark.parametrize("name", FORMATS)
async def test_odd_solutions_are_rewarded(name, most, judge_all, tmp_path):
    verdicts = await judge_all(worked_on(FORMATS[name](tmp_path), share(ODD, most, list(FORMATS).index(name))))
    assert {odd: verdict.explanation for odd, verdict in verdicts.items() if verdict.reward != 1} == {}
