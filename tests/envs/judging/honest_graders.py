"""Graders that must reward honest work: as published tasks have them, and with what shells and Python offer."""

from __future__ import annotations

from graders import ANSWER, BY_STATUS, COMPARED, RIGHT, TESTS, WAYS_TO_TEST, Grader, planted, tests

TB2 = """\
#!/bin/bash
set -e
apt-get update
apt-get install -y curl
curl -LsSf https://astral.sh/uv/0.9.5/install.sh | sh
source $HOME/.local/bin/env
if [ "$PWD" = "/" ]; then
    echo "Error: No working directory set."
    exit 1
fi
set +e
uvx \\
  -p 3.13 \\
  -w pytest==8.4.1 \\
  -w pytest-json-ctrf==0.3.5 \\
  pytest --ctrf /logs/verifier/ctrf.json /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
JUNIT = """\
#!/bin/bash
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
pip install pytest==8.0
python3 -m pytest /tests/test_outputs.py --junitxml="$out/junit.xml" --json-report --json-report-file="$out/report.json" || true
python3 - "$out/junit.xml" "$out/report.json" << 'PY'
import json, sys, xml.etree.ElementTree as ET
suite = ET.parse(sys.argv[1]).getroot().find("testsuite")
bad = int(suite.get("failures")) + int(suite.get("errors"))
passed = json.load(open(sys.argv[2]))["summary"].get("passed", 0)
open("/logs/verifier/reward.txt", "w").write(str(int(bad == 0 and passed == int(suite.get("tests")))))
PY
"""
OUTPUTS = (
    "from pathlib import Path\n\n\ndef test_answer():\n    assert Path('/app/out.txt').read_text().strip() == '42'\n"
)

REWARD = "/logs/verifier/reward.txt"
OK = f"echo 1 > {REWARD}\n"


def by_python(code: str, agent: str = ANSWER, **also: str) -> Grader:
    """A grader whose status is that of a program in Python. also: its other files."""
    return Grader(f"python3 /tests/grade.py && {OK}", agent, {"grade.py": code, **also})


def by_shell(script: str, agent: str = ANSWER, **also: str) -> Grader:
    """A grader that rewards what a script says of which no command fails. also: its other files, `__` for the dot."""
    named = {name.replace("__", "."): text for name, text in also.items()}
    return Grader(f"set -euo pipefail\n{script}\n{OK}", agent, named)


SERVER = "import http.server, sys\nclass H(http.server.BaseHTTPRequestHandler):\n    def do_GET(self):\n        self.send_response(200); self.end_headers(); self.wfile.write(b'42')\n    def log_message(self, *a): pass\nhttp.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()"


HONEST: dict[str, Grader] = {
    "a module of helpers that is named as tests are": tests(
        "python3 /tests/test_plain.py && python3 -m pytest -q /tests/test_it.py", RIGHT
    )
    .with_file("test_it.py", "from test_helper import twice\n" + TESTS.replace("== 4", "== twice(2)"))
    .with_file(
        "test_plain.py", "from test_helper import twice\nfrom solution import double\nassert double(2) == twice(2)\n"
    )
    .with_file("test_helper.py", "def twice(x): return 2 * x\n"),
    "fixtures of a module that conftest.py imports": tests("python3 -m pytest -q /tests/test_it.py", RIGHT)
    .with_file("conftest.py", "from fixtures import *\n")
    .with_file(
        "fixtures.py",
        "import pytest\nfrom solution import double\n@pytest.fixture\ndef doubled(number):\n    return double(number + 0)\n"
        "@pytest.fixture\ndef name(request):\n    return request.node.name\n",
    )
    .with_file(
        "test_it.py",
        "import pytest\n@pytest.mark.parametrize('number, want', [(2, 4), (5, 10)])\n"
        "def test_it(doubled, name, number, want):\n    assert doubled == want\n    assert doubled == 2 * number\n"
        "    assert name == f'test_it[{number}-{2 * number}]'\n",
    ),
    "a private folder where hidden tests go": tests(
        "mkdir -p a/tests/unit; cp /tests/test_it.py a/tests/unit/; python3 -m pytest a/tests/unit/test_it.py",
        RIGHT + "mkdir a; mkdir -m 700 a/tests; echo 1 > a/tests/x; chmod 600 a/tests/x; ln -s x a/tests/l",
    ),
    "what a shell evaluates, traps and sources": by_shell(
        """\
check() { eval "$2"; }
check "a count" "[ \\"$(cat out.txt)\\" -eq 42 ]"
cmd="grep -q 42 $PWD/out.txt"; cmd="$cmd && test -f 'out.txt'"; eval "$cmd"
for one in "test -f out.txt" 'grep -qx "42" out.txt'; do eval "$one"; done
words=("ls" "-la" "$PWD"); eval "${words[@]}"
tmp=$(mktemp -d); trap "rm -rf $tmp" EXIT; trap 'echo done' INT
cat > /tmp/lib.sh << 'X'
f() { echo lib; }
X
source /tmp/lib.sh; [ "$(f)" = lib ]
cat > /tests/lib.sh << X
g() { echo $PWD; }
X
. /tests/lib.sh; [ "$(g)" = /app ]
cat > /tests/in.sh << 'X'
id -u
X
[ "$(bash /tests/in.sh)" = 0 ]
cat > /tests/late.py << 'X'
assert open('/app/out.txt').read() == '42\\n'  # not for /logs/verifier
X
python3 /tests/late.py""",
        ANSWER,
    ),
    "links of root's and of the agent's": Grader(
        f"ln -s /tests/expected.txt want.txt; ./run; diff want.txt out.txt && cmp want.txt out.txt && diff -r . . {COMPARED}",
        planted("run", "#!/bin/sh\necho 42 > real.txt; mkdir -p in; ln -s ../real.txt in/a; ln -s in/a out.txt"),
        {"expected.txt": "42\n"},
    ),
    "an archive of the agent's": Grader(
        "tar xf out.tar -C $(mktemp -d); python3 /tests/grade.py\n",
        "mkdir d; echo 42 > d/out.txt; ln -s out.txt d/l; tar cf out.tar d; rm -r d",
        {
            "grade.py": "import tarfile\ntarfile.open('/app/out.tar').extractall('/tmp/x')\n"
            "open('/logs/verifier/reward.txt', 'w').write(str(int(open('/tmp/x/d/l').read() == '42\\n')))\n"
        },
    ),
    "terminal-bench 2's": Grader(TB2, ANSWER, {"test_outputs.py": OUTPUTS}),
    "JUnit in a folder of root's": Grader(JUNIT, ANSWER, {"test_outputs.py": OUTPUTS}),
    "uv's environment": Grader(
        "uv venv .tbench-testing\nsource .tbench-testing/bin/activate\nuv pip install pytest==8.4.1\nuv run pytest $PWD/../tests/test_outputs.py -rA\n"
        + BY_STATUS,
        ANSWER,
        {"test_outputs.py": OUTPUTS},
    ),
    "Unix tools": Grader(
        'set -e\ncd /app\nwhile read -r line; do test "$line" = 42; done < out.txt\ntest "$(wc -l < out.txt)" -eq 1\n'
        "out=$(mktemp -d); cp out.txt $out/copy; sort $out/copy | uniq | tee $out/sorted | awk -v want=42 '$1 == want { n++ } END { exit n != 1 }'\n"
        "diff <(cat out.txt) /tests/expected.txt; sed -i 's/4/5/' $out/copy; grep -qx 52 $out/copy; find . -name out.txt -exec cat {} +\n"
        "bash -c 'set -e; test -f out.txt'; x=out.txt; bash -c \"cat $x\"; sh <<'E'\ntest -s out.txt\nE\n"
        'jobs=(a b); for job in "${jobs[@]}"; do eval "$job=1"; done; test $a$b = 11; command -v grep; printf \'%s\' 1 > /logs/verifier/reward.txt\n',
        ANSWER,
        {"expected.txt": "42\n"},
    ),
    "a program of the agent's": Grader(
        "set -e\ntmp=$(mktemp)\n./run /tests/input.txt > $tmp; cmp $tmp /tests/expected.txt; timeout 5 ./run < /tests/input.txt | grep -qx 42\n"
        "env A=1 sh -c './run /tests/input.txt'; ./run /tests/input.txt --output=$(mktemp -d)/x; echo 1 > /logs/verifier/reward.txt\n",
        planted("run", "#!/bin/sh\nexec cat ${1:--}"),
        {"input.txt": "42\n", "expected.txt": "42\n"},
    ),
    "a program that writes a report into the logs": Grader(
        "./run /logs/verifier/report.json; grep -q true /logs/verifier/report.json && echo 1 > /logs/verifier/reward.txt\n",
        planted("run", "#!/bin/sh\necho '{\"ok\": true}' > $1"),
    ),
    "a grader in Python that reads what was made": Grader(
        "python3 /tests/grade.py && python3 -c \"import json; assert json.load(open('/app/out.json')) == [42]\"\n",
        "echo '[42]' > out.json; echo 'import os; os._exit(1)' > json.py",
        {
            "grade.py": "import ast, json, pathlib\nfrom helper import WANTED\ntext = pathlib.Path('/app/out.json').read_text()\n"
            "good = json.loads(text) == ast.literal_eval(text) == eval(text) == WANTED\n"
            "from dataclasses import dataclass\n@dataclass\nclass A:\n    b: int = 1\n"
            "pathlib.Path('/logs/verifier/reward.json').write_text(json.dumps({'reward': int(good)}))\n",
            "helper.py": "WANTED = [42]\n",
        },
    ),
    "tests that write over what is there": Grader(
        f"export PYTHONPATH=/app\ncp /tests/kept.txt data/; python3 -m pytest -q /tests/test_it.py\n{BY_STATUS}",
        "mkdir data; echo old > data/out.txt; chmod 600 data/out.txt",
        {
            "kept.txt": "kept\n",
            "test_it.py": "import pathlib\n\ndef test_writes():\n    path = pathlib.Path('data/out.txt')\n"
            "    path.write_text('new')\n    assert path.read_text() == 'new'\n    open('data/new.txt', 'w').write('x')\n",
        },
    ),
    "tests put over the agent's own": tests(
        "mkdir -p tests && cp /tests/test_it.py tests/ && python3 -m pytest tests/test_it.py",
        RIGHT + "mkdir -p tests; echo 'def test_mine(): pass' > tests/test_it.py; chmod 444 tests/test_it.py",
    ),
    "pytest that is asked for its version": tests(
        "python3 -m pytest --version; python3 -c 'import pytest' || exit 1; python3 -m pytest --no-such-option; python3 -m pytest /tests/test_it.py",
        RIGHT,
    ),
    **{f"tests by {name}": tests(command, RIGHT) for name, command in WAYS_TO_TEST.items() if "-I" not in name},
    "PIPESTATUS": tests(
        "set -o pipefail; python3 -m pytest /tests/test_it.py 2>&1 | tee /logs/verifier/out.txt; (exit ${PIPESTATUS[0]})",
        RIGHT,
    ),
    "PIPESTATUS 2": Grader(
        f"export PYTHONPATH=/app\npython3 -m pytest /tests/test_it.py -rA 2>&1 | tee /tmp/out.txt\nif [ ${{PIPESTATUS[0]}} -eq 0 ]; then echo 1 > {REWARD}; else echo 0 > {REWARD}; fi\n",
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "exec into tee": Grader(
        f"exec > >(tee -a /logs/verifier/test-stdout.txt) 2>&1\nexport PYTHONPATH=/app\npython3 -m pytest /tests/test_it.py && {OK}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "cd tests": tests("cd /tests && python3 -m pytest test_it.py", RIGHT),
    "cd dirname": tests('cd "$(dirname "$0")" && python3 -m pytest test_it.py', RIGHT),
    "BASH_SOURCE": Grader(
        'HERE="$( cd "$( dirname "${BASH_SOURCE[0]}" )" && pwd )"\nexport PYTHONPATH=/app\npython3 -m pytest "$HERE/test_it.py"\n'
        + BY_STATUS,
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "stdout as reward": Grader(
        f"python3 /tests/grade.py > {REWARD}\n",
        ANSWER,
        {"grade.py": "print(int(open('/app/out.txt').read() == '42\\n'))\n"},
    ),
    "substitution as reward": Grader(
        f'echo "$(python3 /tests/grade.py)" > {REWARD}\n',
        ANSWER,
        {"grade.py": "print(float(open('/app/out.txt').read() == '42\\n'))\n"},
    ),
    "tee as reward": Grader(f"grep -c 42 out.txt | tee {REWARD}\n", ANSWER),
    "reward json": Grader(
        'echo \'{"reward": 1.0, "accuracy": 0.5}\' > /logs/verifier/reward.json; grep -q 42 out.txt || echo \'{"reward": 0}\' > /logs/verifier/reward.json\n',
        ANSWER,
    ),
    "reward dir from a variable": Grader(
        'LOG_DIR="${LOG_DIR:-/logs/verifier}"; mkdir -p "$LOG_DIR"; if grep -q 42 out.txt; then echo 1 > "$LOG_DIR/reward.txt"; fi\n',
        ANSWER,
    ),
    "trap on exit": Grader(
        f"result=0\nfinish() {{ echo $result > {REWARD}; }}\ntrap finish EXIT\ngrep -q 42 out.txt && result=1\nexit 0\n",
        ANSWER,
    ),
    "trap on ERR": Grader(f"set -E\ntrap 'echo 0 > {REWARD}; exit 1' ERR\ngrep -q 42 out.txt\n{OK}", ANSWER),
    "arithmetic score": Grader(
        f'passed=0; total=0\ncheck() {{ total=$((total+1)); if "$@"; then passed=$((passed+1)); fi; }}\ncheck test -f out.txt\ncheck grep -q 42 out.txt\n((passed == total)) && echo 1 > {REWARD}\n',
        ANSWER,
    ),
    "awk score": Grader(
        f"awk -v p=2 -v t=2 'BEGIN {{ printf \"%.2f\\n\", p/t }}' > {REWARD}; grep -q 42 out.txt || echo 0 > {REWARD}\n",
        ANSWER,
    ),
    "a server in a trap": by_shell(
        "trap 'kill $pid 2>/dev/null || true' EXIT\n./run > /tmp/log 2>&1 & pid=$!\nsleep 1\npython3 /tests/ask.py",
        planted("run", "#!/bin/sh\nexec python3 server.py 8124") + planted("server.py", SERVER),
        ask__py="import urllib.request as u\nassert u.urlopen('http://127.0.0.1:8124').read() == b'42'\n",
    ),
    "unittest as a grader": by_python(
        "import unittest, pathlib\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(pathlib.Path('/app/out.txt').read_text().strip(), '42')\n    def test_b(self):\n        self.assertTrue(pathlib.Path('/app/out.txt').exists())\nif __name__ == '__main__':\n    unittest.main(verbosity=2)\n"
    ),
    "arguments and env": Grader(
        f"WANT=42 python3 /tests/grade.py --file out.txt && {OK}",
        ANSWER,
        {
            "grade.py": "import argparse, os\np = argparse.ArgumentParser(); p.add_argument('--file'); a = p.parse_args()\nassert open(a.file).read().strip() == os.environ['WANT']\n"
        },
    ),
    "late imports": by_python(
        "text = open('/app/out.txt').read()\nimport ssl, email.message, http.client, urllib.request, xml.dom.minidom, decimal, fractions, statistics, logging.config, unittest.mock, ctypes, sqlite3, tarfile, zipfile, uuid, inspect, ast, timeit, pprint, textwrap, secrets, socketserver\nassert decimal.Decimal(text) == 42\nassert ast.literal_eval(text) == 42\nassert timeit.timeit('1 + 1', number=2) >= 0\nassert inspect.getsource(textwrap.dedent)\n"
    ),
    "pytest reads data": tests("python3 -m pytest -q /tests/test_out.py", ANSWER).with_file(
        "test_out.py",
        "import json, os, pathlib, subprocess, pytest\nHERE = pathlib.Path(__file__).parent\ndef test_a():\n    assert pathlib.Path('out.txt').read_text() == '42\\n'\n    assert os.getcwd() == '/app'\n@pytest.fixture(scope='session')\ndef built(tmp_path_factory):\n    d = tmp_path_factory.mktemp('b')\n    subprocess.run(['cp', '/app/out.txt', str(d)], check=True)\n    return d\ndef test_b(built):\n    assert (built / 'out.txt').exists()\n@pytest.mark.parametrize('n', range(3))\ndef test_c(n):\n    assert subprocess.run(['cat', '/app/out.txt'], capture_output=True, text=True, timeout=5).stdout == '42\\n'\nclass TestD:\n    @classmethod\n    def setup_class(cls):\n        cls.x = open('/app/out.txt').read()\n    def test_d(self):\n        assert self.x.strip() == '42'\n",
    ),
    "pytest of a server": tests("python3 -m pytest -q /tests/test_out.py", planted("server.py", SERVER)).with_file(
        "test_out.py",
        "import subprocess, time, urllib.request, pytest\n@pytest.fixture(scope='module')\ndef server():\n    p = subprocess.Popen(['python3', '/app/server.py', '8130'])\n    for _ in range(50):\n        try:\n            urllib.request.urlopen('http://127.0.0.1:8130'); break\n        except OSError:\n            time.sleep(0.1)\n    yield 8130\n    p.terminate(); p.wait()\ndef test_a(server):\n    r = urllib.request.urlopen(f'http://127.0.0.1:{server}/')\n    assert r.status == 200\n    assert r.read() == b'42'\n",
    ),
    "pytest with a conftest": tests("python3 -m pytest -q /tests/test_out.py", ANSWER)
    .with_file("test_out.py", "def test_a(answer, helper):\n    assert answer == 42\n    assert helper(2) == 4\n")
    .with_file(
        "conftest.py",
        "import pytest\ndef pytest_addoption(parser):\n    parser.addoption('--answer-file', default='/app/out.txt')\ndef pytest_configure(config):\n    config.addinivalue_line('markers', 'x: y')\n@pytest.fixture\ndef answer(request):\n    return int(open(request.config.getoption('--answer-file')).read())\n@pytest.fixture\ndef helper():\n    return lambda x: 2 * x\n",
    ),
    "pytest options": tests(
        "python3 -m pytest /tests/test_it.py -v --tb=short -rA -p no:cacheprovider -o cache_dir=/tmp/c --color=yes -s --durations=3 -k 'two or ten' -x --maxfail=1 --disable-warnings -W ignore --strict-markers --rootdir=/tests --no-header",
        RIGHT,
    ),
    "pytest of nodes": tests("python3 -m pytest /tests/test_it.py::test_two /tests/test_it.py::test_ten", RIGHT),
    "pytest in turns": Grader(
        f"export PYTHONPATH=/app\nscore=0\nfor t in test_two test_ten; do python3 -m pytest -q /tests/test_it.py::$t > /dev/null 2>&1 && score=$((score + 1)); done\n[ $score -eq 2 ] && {OK}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "pytest's output is read": Grader(
        f'export PYTHONPATH=/app\nout=$(python3 -m pytest -q /tests/test_it.py 2>&1)\necho "$out"\npassed=$(echo "$out" | grep -oE \'[0-9]+ passed\' | grep -oE \'[0-9]+\')\n[ "$passed" = 2 ] && ! echo "$out" | grep -q failed && {OK}',
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "venv": tests(
        "python3 -m venv --system-site-packages /tmp/v && . /tmp/v/bin/activate; python -m pytest /tests/test_it.py",
        RIGHT,
    ),
    "pip quietly": tests(
        "pip install --quiet --break-system-packages pytest==8.4.1 pytest-timeout > /dev/null 2>&1; python3 -m pytest /tests/test_it.py",
        RIGHT,
    ),
    "requirements": tests(
        "pip3 install -r /tests/requirements.txt --root-user-action=ignore && pytest /tests/test_it.py", RIGHT
    ).with_file("requirements.txt", "pytest>=7\n"),
    "apt": tests(
        "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-pytest > /dev/null && rm -rf /var/lib/apt/lists/*; pytest /tests/test_it.py",
        RIGHT,
    ),
    "uv run with": tests(
        "uv run --no-project --with pytest --with pytest-json-ctrf python -m pytest /tests/test_it.py", RIGHT
    ),
    "uv init": tests(
        "cd /tmp && uv init && uv add pytest==8.4.1 && cd /app && uv run pytest /tests/test_it.py -rA", RIGHT
    ),
    "uvx first": tests("uvx --from pytest pytest /tests/test_it.py", RIGHT),
    "curl of uv by hand": tests(
        "curl -LsSf https://astral.sh/uv/install.sh | env UV_INSTALL_DIR=/usr/local/bin sh; export PATH=$HOME/.local/bin:$PATH; uvx pytest /tests/test_it.py",
        RIGHT,
    ),
    "pytest two folders": tests(
        "mkdir -p /app/tests; cp /tests/test_it.py /app/tests/test_hidden.py; cp /tests/test_cases.py /app/tests/; cd /app; python3 -m pytest tests",
        RIGHT,
    ),
    "unittest discover": tests(
        "cp /tests/test_cases.py /app/; python3 -m unittest discover -s /app -p 'test_c*.py' -v", RIGHT
    ),
    "unittest from the folder": tests("cd /tests; python3 -m unittest test_cases", RIGHT),
    "unittest one": tests("cd /tests; python3 -m unittest test_cases.Cases.test_two -v", RIGHT),
    "doctest": tests("python3 -m doctest /tests/readme.txt", RIGHT).with_file(
        "readme.txt", ">>> from solution import double\n>>> double(2)\n4\n"
    ),
    "strict and quiet end": by_shell(
        'set -Eeuo pipefail; IFS=$\'\\n\\t\'; readonly WANT=42; : "${FOO:=bar}"; [[ $(<out.txt) == "$WANT" ]]'
    ),
    "script with CRLF free newline less": Grader(f"grep -qx 42 out.txt && echo -n 1 > {REWARD}", ANSWER),
    "printf 1.0": Grader(f"grep -qx 42 out.txt && printf '1.0' > {REWARD}\nexit 1\n", ANSWER),
    "reward by cat heredoc": Grader(f"if grep -qx 42 out.txt; then cat > {REWARD} <<EOF\n1\nEOF\nfi\n", ANSWER),
    "reward by python -c": Grader(
        f"python3 -c \"open('{REWARD}', 'w').write('1' if open('out.txt').read().strip() == '42' else '0')\"\n", ANSWER
    ),
    "reward by mv": Grader(f"tmp=$(mktemp); grep -c 42 out.txt > $tmp; mv $tmp {REWARD}\n", ANSWER),
    "reward by cp": Grader(
        f"grep -c 42 out.txt > /tmp/r; cp /tmp/r {REWARD}; install -m 644 /tmp/r {REWARD}\n", ANSWER
    ),
    "reward from a conftest": Grader(
        "export PYTHONPATH=/app\npython3 -m pytest -q /tests/test_it.py\n" + BY_STATUS,
        RIGHT,
        {
            "test_it.py": TESTS,
            "conftest.py": "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(session, exitstatus):\n    print('done', exitstatus)\ndef pytest_terminal_summary(terminalreporter):\n    terminalreporter.write_line('x')\n",
        },
    ),
    "private data": by_shell(
        "grep -qx 42 key; [ $(stat -c %a key) = 600 ]; cat key | grep -qx 42; [ $(< key) = 42 ]; diff key /tests/w; cmp key /tests/w; cat d/a; ls d; ls d | wc -l | grep -qx 1; find d -type f | grep -qx d/a; grep -r 42 d; cd d; cat a; [ -f a ]; cd ..; cp key /tmp/k; cp -r d /tmp/d; sort key; head -c 2 key; wc -l < key; python3 /tests/g.py; tar cf /tmp/t d; md5sum key; awk '{print}' key; sed -n 1p key; while read -r x; do [ $x = 42 ]; done < key; test -s key; test -f d/a; stat -c %a d | grep -qx 700; ls -la d key; echo more >> key",
        "echo 42 > key; chmod 600 key; mkdir d; echo 42 > d/a; chmod 700 d",
        w="42\n",
        g__py="print('/logs/verifier')\nassert open('/app/key').read() == '42\\n'\nimport os\nassert os.listdir('/app/d') == ['a']\nassert open('/app/d/a').read() == '42\\n'\nassert oct(os.stat('/app/key').st_mode)[-3:] == '600'\n",
    ),
    "private data in pytest": tests(
        "python3 -m pytest -q /tests/test_out.py", "echo 42 > key; chmod 600 key; mkdir d; echo 42 > d/a; chmod 700 d"
    ).with_file(
        "test_out.py",
        "import os\ndef test_a():\n    assert open('/app/key').read() == '42\\n'\n    assert os.listdir('/app/d') == ['a']\n    assert oct(os.stat('/app/key').st_mode)[-3:] == '600'\n",
    ),
    "venv 2": tests(
        "python3 -m venv /opt/v && source /opt/v/bin/activate && pip install -q pytest && pytest -q /tests/test_it.py && python -m pytest /tests/test_it.py",
        RIGHT,
    ),
    "venv by paths": tests(
        "python3 -m venv /opt/v && /opt/v/bin/pip install pytest && /opt/v/bin/python -m pytest /tests/test_it.py && /opt/v/bin/pytest /tests/test_it.py",
        RIGHT,
    ),
    "venv in the tree": tests(
        "python3 -m venv .venv && source .venv/bin/activate && pip install pytest && pytest /tests/test_it.py && .venv/bin/python -m pytest /tests/test_it.py",
        RIGHT,
    ),
    "uv run of a program": by_shell(
        "uv run solve.py | grep -qx 42; uv run python solve.py; uv run --no-sync -q solve.py; uv run ./run; uv run bash -c 'true'; uv run -- python solve.py; uv run -m solve; echo 'print(1)' | uv run -; ! uv run nothing; uv sync; ! uv run false",
        planted("solve.py", "print(42)") + planted("run", "#!/bin/sh\ntrue"),
    ),
    "uvx of pytest": tests(
        "uvx --with pytest --python 3.11 pytest /tests/test_it.py && uv tool run --from pytest pytest /tests/test_it.py && uv run -m pytest /tests/test_it.py && uv run --with=pytest --isolated python3 -m pytest /tests/test_it.py",
        RIGHT,
    ),
}
