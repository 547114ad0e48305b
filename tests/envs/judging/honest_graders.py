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
    "cd dirname": tests('cd "$(dirname "$0")" && python3 -m pytest test_it.py', RIGHT),
    "BASH_SOURCE": Grader(
        'HERE="$( cd "$( dirname "${BASH_SOURCE[0]}" )" && pwd )"\nexport PYTHONPATH=/app\npython3 -m pytest "$HERE/test_it.py"\n'
        + BY_STATUS,
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "reward json": Grader(
        'echo \'{"reward": 1.0, "accuracy": 0.5}\' > /logs/verifier/reward.json; grep -q 42 out.txt || echo \'{"reward": 0}\' > /logs/verifier/reward.json\n',
        ANSWER,
    ),
    "coproc and printf -v": by_shell(
        "printf -v x '%s' \"$(cat out.txt)\"; case $x in 42) ;; *) exit 1;; esac; coproc cat; echo hi >&${COPROC[1]}; read -r y <&${COPROC[0]}; [ $y = hi ]"
    ),
    "stat and readlink": by_shell(
        '[ "$(stat -c %a out.txt)" = 640 ]; [ "$(readlink -f l)" = /app/out.txt ]; [ "$(readlink l)" = out.txt ]; [ -L l ]; [ -x . ]; [ "$(wc -c < out.txt)" -eq 3 ]',
        ANSWER + "; chmod 640 out.txt; ln -s out.txt l",
    ),
    "git of a bare one": by_shell(
        "git clone -q /app/r.git /tmp/c; grep -qx 42 /tmp/c/out.txt",
        "git init -q w; cd w; echo 42 > out.txt; git add -A; git -c user.name=a -c user.email=a@b.c commit -qm fix; cd ..; git clone -q --bare w r.git",
    ),
    "a server in a trap": by_shell(
        "trap 'kill $pid 2>/dev/null || true' EXIT\n./run > /tmp/log 2>&1 & pid=$!\nsleep 1\npython3 /tests/ask.py",
        planted("run", "#!/bin/sh\nexec python3 server.py 8124") + planted("server.py", SERVER),
        ask__py="import urllib.request as u\nassert u.urlopen('http://127.0.0.1:8124').read() == b'42'\n",
    ),
    "setsid and pkill": by_shell(
        "setsid python3 server.py 8126 &\nsleep 1\npgrep -f server.py\npython3 /tests/ask.py\npkill -f server.py; sleep 0.2; ! pgrep -f server.py",
        planted("server.py", SERVER),
        ask__py="import socket\ns = socket.create_connection(('127.0.0.1', 8126)); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\nd = b''\nwhile (x := s.recv(99)): d += x\nassert d.endswith(b'42')\n",
    ),
    "timeout": by_shell(
        "timeout 10 ./run | grep -qx 42; timeout -s KILL 5 bash -c './run > /tmp/o'; timeout 1 sleep 5 || [ $? -eq 124 ]",
        planted("run", "#!/bin/sh\necho 42"),
    ),
    "input into the tree": by_shell(
        "cp /tests/in.txt data.txt; ./run; grep -qx 42 result.txt; rm -f result.txt; ./run; test -f result.txt; rm -rf sub; mkdir sub; (cd sub; cp ../data.txt .; ../run; test -f result.txt)",
        planted("run", "#!/bin/sh\ncat data.txt > result.txt"),
        in__txt="42\n",
    ),
    "Python of the agent's": by_shell(
        "python3 solve.py 21 | grep -qx 42; python3 /app/solve.py 21 > /tmp/x; cd /tmp; python3 /app/solve.py 21; cd /app; python3 -m solve 21; python3 -c 'import solve; assert solve.f(21) == 42'; python3 - <<'E'\nimport sys\nsys.path.insert(0, '/app')\nimport solve\nassert solve.f(2) == 4\nE",
        planted(
            "solve.py", "import sys\ndef f(x): return x * 2\nif __name__ == '__main__': print(f(int(sys.argv[1])))"
        ),
    ),
    "Python by its paths": by_shell(
        "/usr/bin/python3 solve.py | grep -qx 42; $(which python3) solve.py; env python3 solve.py; exec 5>&1; python3.11 solve.py >&5; command python3 solve.py",
        planted("solve.py", "print(42)"),
    ),
    "su": by_shell(
        "su nobody -s /bin/sh -c 'cat /app/out.txt' | grep -qx 42; setpriv --reuid=65534 --clear-groups cat out.txt | grep -qx 42"
    ),
    "subprocess of the agent's": by_python(
        "import subprocess, sys\nr = subprocess.run(['python3', '/app/solve.py', '21'], capture_output=True, text=True, timeout=10, cwd='/app')\nassert r.returncode == 0, r.stderr\nassert r.stdout == '42\\n'\nr = subprocess.run([sys.executable, 'solve.py', '2'], capture_output=True, text=True, cwd='/app', env={'PATH': '/usr/bin:/bin'})\nassert r.stdout == '4\\n', r\nassert subprocess.check_output('python3 solve.py 3', shell=True, cwd='/app') == b'6\\n'\np = subprocess.Popen(['./solve.py', '4'], cwd='/app', stdout=subprocess.PIPE)\nassert p.communicate()[0] == b'8\\n'\n",
        planted("solve.py", "#!/usr/bin/env python3\nimport sys\nprint(int(sys.argv[1]) * 2)"),
    ),
    "functions that a script exports": by_shell(
        'read_it() { cat "$1"; }; is_right() { [ "$(read_it "/app/$1")" = 42 ]; }; export -f read_it is_right\n'
        "timeout 9 bash -c 'is_right out.txt'; ls *.txt | xargs -I{} bash -c 'is_right \"$@\"' _ {}\n"
        "is_there() { is_right out.txt; }; export -f is_there; bash -c is_there"
    ),
    "many formats": by_python(
        "import csv, json, gzip, zipfile, configparser, hashlib, re, xml.etree.ElementTree as ET, tomllib, base64, html, io\nassert json.load(open('/app/a.json')) == {'x': 42}\nassert list(csv.reader(open('/app/a.csv', newline=''))) == [['x', '42']]\nassert gzip.open('/app/a.gz', 'rt').read() == '42\\n'\nassert zipfile.ZipFile('/app/a.zip').read('a.csv') == b'x,42\\n'\nassert tomllib.load(open('/app/a.toml', 'rb')) == {'x': 42}\nc = configparser.ConfigParser(); c.read('/app/a.ini'); assert c['a']['x'] == '42'\nassert ET.parse('/app/a.xml').getroot().text == '42'\nassert hashlib.md5(open('/app/a.csv', 'rb').read()).hexdigest()\nassert re.search('x', open('/app/a.csv').read())\nassert list(csv.DictReader(open('/app/a.csv'), fieldnames=['k', 'v'])) == [{'k': 'x', 'v': '42'}]\n",
        "echo '{\"x\": 42}' > a.json; echo x,42 > a.csv; echo 42 | gzip > a.gz; echo 'x = 42' > a.toml; printf '[a]\\nx = 42\\n' > a.ini; echo '<a>42</a>' > a.xml; python3 -m zipfile -c a.zip a.csv",
    ),
    "process pools": by_python(
        "import concurrent.futures as cf, multiprocessing as mp\ndef read(n): return int(open('/app/out.txt').read())\nif __name__ == '__main__':\n    with mp.Pool(2) as p: assert p.map(read, range(4)) == [42] * 4\n    with cf.ProcessPoolExecutor(2) as p: assert list(p.map(read, range(4))) == [42] * 4\n"
    ),
    "unittest as a grader": by_python(
        "import unittest, pathlib\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(pathlib.Path('/app/out.txt').read_text().strip(), '42')\n    def test_b(self):\n        self.assertTrue(pathlib.Path('/app/out.txt').exists())\nif __name__ == '__main__':\n    unittest.main(verbosity=2)\n"
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
    "curl of uv by hand": tests(
        "curl -LsSf https://astral.sh/uv/install.sh | env UV_INSTALL_DIR=/usr/local/bin sh; export PATH=$HOME/.local/bin:$PATH; uvx pytest /tests/test_it.py",
        RIGHT,
    ),
    "unittest discover": tests(
        "cp /tests/test_cases.py /app/; python3 -m unittest discover -s /app -p 'test_c*.py' -v", RIGHT
    ),
    "unittest one": tests("cd /tests; python3 -m unittest test_cases.Cases.test_two -v", RIGHT),
    "doctest": tests("python3 -m doctest /tests/readme.txt", RIGHT).with_file(
        "readme.txt", ">>> from solution import double\n>>> double(2)\n4\n"
    ),
    "/app copied": by_shell(
        "cp -r /app /tmp/app2; cp -a . /tmp/app3; cd /tmp/app2; grep -qx 42 out.txt; ./run | grep -qx 42; cd /tmp/app3 && ./run",
        ANSWER + ";" + planted("run", "#!/bin/sh\ncat out.txt"),
    ),
    "moved and restored": by_shell(
        "mv out.txt out.bak; ./run; grep -qx 42 out.txt; rm out.txt; rm -rf build; mkdir -p build; ./run; grep -qx 42 out.txt; (cd build; ../run; grep -qx 42 out.txt); rm out.txt; ./run",
        ANSWER + ";" + planted("run", "#!/bin/sh\necho 42 > out.txt"),
    ),
    "reward from a conftest": Grader(
        "export PYTHONPATH=/app\npython3 -m pytest -q /tests/test_it.py\n" + BY_STATUS,
        RIGHT,
        {
            "test_it.py": TESTS,
            "conftest.py": "import pytest\n@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(session, exitstatus):\n    print('done', exitstatus)\ndef pytest_terminal_summary(terminalreporter):\n    terminalreporter.write_line('x')\n",
        },
    ),
    "regenerated, mode 600": by_shell(
        "./run; grep -qx 42 out.txt; [ $(stat -c %a out.txt) = 600 ]",
        planted("run", "#!/bin/sh\numask 077; echo 42 > out.txt", "./run"),
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
    "input folders": by_shell(
        "cp -r /tests/inputs .; ./run inputs/a > /tmp/o; grep -qx 42 /tmp/o; cp /tests/inputs/a b.txt; ./run b.txt; install -m 644 /tests/inputs/a c.txt; ./run c.txt; mkdir -p x; cp /tests/inputs/a /tests/inputs/b x/; ./run x/a; ./run x/b; cd x; cp ../inputs/a z; ../run z",
        planted("run", "#!/bin/sh\ncat $1"),
        **{"inputs/a": "42\n", "inputs/b": "1\n"},
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
