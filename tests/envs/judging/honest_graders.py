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
    "source a library": by_shell(
        '. "$(dirname "$0")/lib.sh"\ncheck out.txt 42', lib__sh='check() { [ "$(cat "$1")" = "$2" ]; }\n'
    ),
    "another script": by_shell("bash /tests/check.sh /app/out.txt", check__sh='[ "$(cat $1)" = 42 ] || exit 1\n'),
    "an executable script": by_shell(
        "chmod +x /tests/check.sh; /tests/check.sh /app/out.txt",
        check__sh='#!/bin/bash\n[ "$(cat $1)" = 42 ] || exit 1\n',
    ),
    "an executable Python script": by_shell(
        "chmod +x /tests/check; /tests/check",
        check="#!/usr/bin/env python3\nassert open('/app/out.txt').read() == '42\\n'\n",
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
    "mapfile": by_shell('mapfile -t lines < out.txt\n[[ ${lines[0]} =~ ^[0-9]+$ ]]\n[[ "${lines[0]}" == 42 ]]'),
    "read by descriptor": by_shell('exec 3< out.txt\nread -r -u 3 line\n[ "$line" = 42 ]\nexec 3<&-'),
    "while IFS": by_shell(
        "n=0; while IFS=, read -r a b; do n=$((n + b)); done < out.csv; test $n -eq 42",
        "printf 'x,40\\ny,2\\n' > out.csv",
    ),
    "associative arrays": by_shell(
        'declare -A want=([out.txt]=42)\nfor f in "${!want[@]}"; do [ "$(cat $f)" = "${want[$f]}" ]; done'
    ),
    "coproc and printf -v": by_shell(
        "printf -v x '%s' \"$(cat out.txt)\"; case $x in 42) ;; *) exit 1;; esac; coproc cat; echo hi >&${COPROC[1]}; read -r y <&${COPROC[0]}; [ $y = hi ]"
    ),
    "xargs": by_shell(
        "ls | xargs -I{} echo {} | grep -q out.txt; echo out.txt | xargs cat | grep -q 42; find . -type f -print0 | xargs -0 grep -l 42"
    ),
    "checksums": by_shell(
        "sha256sum out.txt | cut -d' ' -f1 | grep -qx 084c799cd551dd1d8d5c5f9a5d593b2e931f5e36122ee5c793c1d08a19839cc0; md5sum -c /tests/sums",
        sums="50a2fabfdd276f573ff97ace8b11c5f4  out.txt\n",
    ),
    "stat and readlink": by_shell(
        '[ "$(stat -c %a out.txt)" = 640 ]; [ "$(readlink -f l)" = /app/out.txt ]; [ "$(readlink l)" = out.txt ]; [ -L l ]; [ -x . ]; [ "$(wc -c < out.txt)" -eq 3 ]',
        ANSWER + "; chmod 640 out.txt; ln -s out.txt l",
    ),
    "text tools": by_shell(
        "head -n1 out.txt | tr -d '\\n' | cut -c1-2 | paste -sd, | rev | rev | grep -qx 42; sort -n out.txt | uniq -c | sed 's/^ *//' | grep -qx '1 42'; comm -12 out.txt /tests/w; join out.txt /tests/w; expr $(cat out.txt) + 1; seq 1 $(cat out.txt) | tail -1 | grep -qx 42; od -c out.txt | head -1; nl out.txt; fold -w 1 out.txt | head -1 | grep -qx 4",
        w="42\n",
    ),
    "gzip": by_shell(
        "gunzip -c out.gz | grep -qx 42; zcat out.gz > /tmp/x; cmp /tmp/x /tests/w; gzip -t out.gz",
        "echo 42 | gzip > out.gz",
        w="42\n",
    ),
    "tar listing": by_shell(
        "tar tzf out.tgz | grep -qx ./out.txt; tar xzf out.tgz -O ./out.txt | grep -qx 42; d=$(mktemp -d); tar xzf out.tgz -C $d; diff $d/out.txt /tests/w",
        "echo 42 > out.txt; tar czf /tmp/o.tgz ./out.txt; mv /tmp/o.tgz out.tgz",
        w="42\n",
    ),
    "perl": by_shell(
        "perl -ne 'exit 1 unless /^42$/' out.txt; perl -e 'open F, \"<\", \"out.txt\"; $x = <F>; exit($x != 42)'"
    ),
    "git of a bare one": by_shell(
        "git clone -q /app/r.git /tmp/c; grep -qx 42 /tmp/c/out.txt",
        "git init -q w; cd w; echo 42 > out.txt; git add -A; git -c user.name=a -c user.email=a@b.c commit -qm fix; cd ..; git clone -q --bare w r.git",
    ),
    "a server": by_shell(
        'python3 server.py 8123 & pid=$!\nfor i in 1 2 3 4 5 6 7 8 9 10; do python3 -c "import urllib.request as u; u.urlopen(\'http://127.0.0.1:8123\')" && break; sleep 0.3; done\n[ "$(python3 -c "import urllib.request as u; print(u.urlopen(\'http://127.0.0.1:8123\').read().decode())")" = 42 ]\nkill $pid; wait $pid || true',
        planted("server.py", SERVER),
    ),
    "a server in a trap": by_shell(
        "trap 'kill $pid 2>/dev/null || true' EXIT\n./run > /tmp/log 2>&1 & pid=$!\nsleep 1\npython3 /tests/ask.py",
        planted("run", "#!/bin/sh\nexec python3 server.py 8124") + planted("server.py", SERVER),
        ask__py="import urllib.request as u\nassert u.urlopen('http://127.0.0.1:8124').read() == b'42'\n",
    ),
    "nohup": by_shell(
        "nohup python3 server.py 8125 > /tmp/s.log 2>&1 &\nsleep 1\npython3 /tests/ask.py",
        planted("server.py", SERVER),
        ask__py="import http.client\nc = http.client.HTTPConnection('127.0.0.1', 8125); c.request('GET', '/'); assert c.getresponse().read() == b'42'\n",
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
    "stdin here": by_shell(
        '[ "$(./run <<< 21)" = 42 ]; [ "$(printf \'21\\n\' | ./run)" = 42 ]; ./run <<E | grep -qx 42\n21\nE',
        planted("run", "#!/bin/sh\nread x; echo $((x * 2))"),
    ),
    "exit codes": by_shell(
        "set +e; ./run bad; [ $? -eq 3 ] || exit 1; set -e; ./run good; if ./run bad; then exit 1; fi; ./run bad || true",
        planted("run", '#!/bin/sh\n[ "$1" = good ] || exit 3'),
    ),
    "stderr": by_shell(
        "./run 2> /tmp/err > /tmp/out; grep -q oops /tmp/err; grep -q 42 /tmp/out; ./run 2>&1 >/dev/null | grep -q oops; ./run &> /tmp/both; [ $(wc -l < /tmp/both) -eq 2 ]",
        planted("run", "#!/bin/sh\necho oops >&2; echo 42"),
    ),
    "input and output files": by_shell(
        "cp /tests/in.txt /tmp/in.txt; ./run /tmp/in.txt /tmp/result.txt; grep -qx 42 /tmp/result.txt",
        planted("run", "#!/bin/sh\ncat $1 > $2"),
        in__txt="42\n",
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
    "Perl of the agent's": by_shell(
        "perl solve.pl | grep -qx 42; awk -f solve.awk /dev/null | grep -qx 42; sh solve.sh; bash solve.sh",
        planted("solve.pl", 'print "42\\n";')
        + planted("solve.awk", "BEGIN { print 42 }")
        + planted("solve.sh", "echo 42"),
    ),
    "xtrace and verbose": by_shell("set -x; PS4='+ '; grep -q 42 out.txt; set +x; set -v; true; set +v"),
    "umask and ulimit": by_shell(
        "umask 022; ulimit -n 512; ulimit -c 0; ulimit -v unlimited; grep -q 42 out.txt; nice true; export LC_ALL=C.UTF-8 LANG=C.UTF-8 TZ=UTC PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1; date +%s; grep -q 42 out.txt"
    ),
    "globs": by_shell(
        'shopt -s nullglob globstar; files=(*.txt **/*.txt); [ ${#files[@]} -ge 1 ]; for f in *.txt; do grep -q 42 "$f"; done; ls -la; ls *.txt | wc -l; cat *.txt | grep -q 42; rm -f *.pyc; tail -n +1 *.txt'
    ),
    "retry": by_shell(
        "for i in $(seq 1 5); do if grep -q 42 out.txt; then break; fi; sleep 0.1; done; until [ -f out.txt ]; do sleep 0.1; done; grep -q 42 out.txt"
    ),
    "functions and local": by_shell(
        'check() { local f=$1 want=$2; local got; got=$(cat "$f"); [[ "$got" == "$want" ]] || { echo "bad $got"; return 1; }; }; check out.txt 42 && check <(echo 42) 42'
    ),
    "users": by_shell(
        'id -u | grep -qx 0; whoami | grep -qx root; getent passwd root; [ -w /etc ]; [ -n "$HOME" ]; chmod 644 out.txt; chown root:root out.txt; [ "$(stat -c %U out.txt)" = root ]; grep -q 42 out.txt; hostname; uname -r; nproc; df . > /dev/null; free 2>/dev/null || true; ps aux | head -2'
    ),
    "su": by_shell(
        "su nobody -s /bin/sh -c 'cat /app/out.txt' | grep -qx 42; setpriv --reuid=65534 --clear-groups cat out.txt | grep -qx 42"
    ),
    "script that greps source": by_shell(
        "! grep -rn 'eval(' --include=*.py .; grep -q 'def double' solution.py; grep -c return solution.py | grep -qx 1; ! grep -q TODO solution.py; wc -l solution.py; python3 -m py_compile solution.py; python3 -m json.tool < d.json > /dev/null; python3 -m compileall -q . ",
        RIGHT + "echo '{}' > d.json",
    ),
    "sqlite by python": by_python(
        "import sqlite3\ndb = sqlite3.connect('/app/out.db')\nassert db.execute('select v from t').fetchall() == [(42,)]\n",
        "python3 -c \"import sqlite3; d = sqlite3.connect('out.db'); d.execute('create table t (v)'); d.execute('insert into t values (42)'); d.commit()\"",
    ),
    "sqlite read-only": by_python(
        "import sqlite3\ndb = sqlite3.connect('file:/app/out.db?mode=ro', uri=True)\ndb.row_factory = sqlite3.Row\nassert [dict(r) for r in db.execute('select v from t')] == [{'v': 42}]\n",
        "python3 -c \"import sqlite3; d = sqlite3.connect('out.db'); d.execute('pragma journal_mode=wal'); d.execute('create table t (v)'); d.execute('insert into t values (42)'); d.commit()\"",
    ),
    "subprocess of the agent's": by_python(
        "import subprocess, sys\nr = subprocess.run(['python3', '/app/solve.py', '21'], capture_output=True, text=True, timeout=10, cwd='/app')\nassert r.returncode == 0, r.stderr\nassert r.stdout == '42\\n'\nr = subprocess.run([sys.executable, 'solve.py', '2'], capture_output=True, text=True, cwd='/app', env={'PATH': '/usr/bin:/bin'})\nassert r.stdout == '4\\n', r\nassert subprocess.check_output('python3 solve.py 3', shell=True, cwd='/app') == b'6\\n'\np = subprocess.Popen(['./solve.py', '4'], cwd='/app', stdout=subprocess.PIPE)\nassert p.communicate()[0] == b'8\\n'\n",
        planted("solve.py", "#!/usr/bin/env python3\nimport sys\nprint(int(sys.argv[1]) * 2)"),
    ),
    "subprocess with input": by_python(
        "import subprocess\nfor n in range(20):\n    r = subprocess.run(['/app/run'], input=f'{n}\\n', capture_output=True, text=True)\n    assert r.stdout.strip() == str(2 * n)\n",
        planted("run", "#!/bin/sh\nread x; echo $((x * 2))"),
    ),
    "a program on what the shell has opened": by_shell(
        "python3 /dev/stdin 42 << 'END'\nimport sys\nassert open('out.txt').read().strip() == sys.argv[1]\nEND\n"
        'python3 <(echo \'assert open("out.txt").read() == "42\\n"\')'
    ),
    "a shell on what another has opened": by_shell(
        "bash <(echo 'grep -qx 42 \"$1\"') out.txt; bash /dev/stdin 42 << 'END'\ngrep -qx \"$1\" out.txt\nEND\n"
        'echo 42 | bash <(echo \'read -r x; [ "$x" = 42 ]\'); source <(echo \'answer=42\'); [ "$(cat out.txt)" = "$answer" ]'
    ),
    "functions that a script exports": by_shell(
        'read_it() { cat "$1"; }; is_right() { [ "$(read_it "/app/$1")" = 42 ]; }; export -f read_it is_right\n'
        "timeout 9 bash -c 'is_right out.txt'; ls *.txt | xargs -I{} bash -c 'is_right \"$@\"' _ {}\n"
        "is_there() { is_right out.txt; }; export -f is_there; bash -c is_there"
    ),
    "subprocess that hangs": by_python(
        "import subprocess\ntry:\n    subprocess.run(['/app/run', 'hang'], timeout=1)\nexcept subprocess.TimeoutExpired:\n    pass\nelse:\n    raise SystemExit(1)\nassert subprocess.run(['/app/run']).returncode == 0\n",
        planted("run", '#!/bin/sh\n[ "$1" = hang ] && sleep 30; exit 0'),
    ),
    "many formats": by_python(
        "import csv, json, gzip, zipfile, configparser, hashlib, re, xml.etree.ElementTree as ET, tomllib, base64, html, io\nassert json.load(open('/app/a.json')) == {'x': 42}\nassert list(csv.reader(open('/app/a.csv', newline=''))) == [['x', '42']]\nassert gzip.open('/app/a.gz', 'rt').read() == '42\\n'\nassert zipfile.ZipFile('/app/a.zip').read('a.csv') == b'x,42\\n'\nassert tomllib.load(open('/app/a.toml', 'rb')) == {'x': 42}\nc = configparser.ConfigParser(); c.read('/app/a.ini'); assert c['a']['x'] == '42'\nassert ET.parse('/app/a.xml').getroot().text == '42'\nassert hashlib.md5(open('/app/a.csv', 'rb').read()).hexdigest()\nassert re.search('x', open('/app/a.csv').read())\nassert list(csv.DictReader(open('/app/a.csv'), fieldnames=['k', 'v'])) == [{'k': 'x', 'v': '42'}]\n",
        "echo '{\"x\": 42}' > a.json; echo x,42 > a.csv; echo 42 | gzip > a.gz; echo 'x = 42' > a.toml; printf '[a]\\nx = 42\\n' > a.ini; echo '<a>42</a>' > a.xml; python3 -m zipfile -c a.zip a.csv",
    ),
    "walks": by_python(
        "import os, glob, shutil, pathlib, filecmp, difflib, tempfile, fnmatch\nassert sorted(os.listdir('/app')) == ['d', 'out.txt']\nassert [p.name for p in pathlib.Path('/app').rglob('*.txt')] .count('out.txt') == 2\nshutil.copytree('/app', '/tmp/copy')\nassert not filecmp.dircmp('/app', '/tmp/copy').diff_files\nassert list(difflib.unified_diff(open('/app/out.txt').readlines(), open('/app/d/out.txt').readlines())) == []\nassert glob.glob('/app/**/*.txt', recursive=True)\nos.chdir('/app'); assert open('out.txt').read() == '42\\n'; assert os.path.getsize('out.txt') == 3; assert os.access('out.txt', os.R_OK)\nshutil.rmtree('/tmp/copy')\nwith tempfile.TemporaryDirectory() as t: shutil.copy('out.txt', t)\n",
        ANSWER + "; mkdir d; cp out.txt d",
    ),
    "threads and processes": by_python(
        "import concurrent.futures as cf, threading, multiprocessing as mp, asyncio, queue\ndef read(n): return int(open('/app/out.txt').read())\nif __name__ == '__main__':\n    with cf.ThreadPoolExecutor(4) as p: assert list(p.map(read, range(4))) == [42] * 4\n    async def main():\n        p = await asyncio.create_subprocess_exec('/app/run', stdout=asyncio.subprocess.PIPE)\n        return (await p.communicate())[0]\n    assert asyncio.run(main()) == b'42\\n'\n",
        ANSWER + ";" + planted("run", "#!/bin/sh\ncat out.txt"),
    ),
    "process pools": by_python(
        "import concurrent.futures as cf, multiprocessing as mp\ndef read(n): return int(open('/app/out.txt').read())\nif __name__ == '__main__':\n    with mp.Pool(2) as p: assert p.map(read, range(4)) == [42] * 4\n    with cf.ProcessPoolExecutor(2) as p: assert list(p.map(read, range(4))) == [42] * 4\n"
    ),
    "process pool after reading": by_python(
        "import multiprocessing as mp\ndef add(n): return n + 1\nif __name__ == '__main__':\n    x = int(open('/app/out.txt').read())\n    with mp.Pool(2) as p: assert p.map(add, [x]) == [43]\n"
    ),
    "unittest as a grader": by_python(
        "import unittest, pathlib\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(pathlib.Path('/app/out.txt').read_text().strip(), '42')\n    def test_b(self):\n        self.assertTrue(pathlib.Path('/app/out.txt').exists())\nif __name__ == '__main__':\n    unittest.main(verbosity=2)\n"
    ),
    "helpers of its own": by_python(
        "import helpers.a as a\nfrom helpers import b\nimport importlib\nassert importlib.import_module('helpers.a').read() == b.WANT\n",
        **{
            "helpers/__init__.py": "",
            "helpers/a.py": "def read(): return open('/app/out.txt').read()\n",
            "helpers/b.py": "WANT = '42\\n'\n",
        },
    ),
    "data of its own": by_python(
        "import json, os\nhere = os.path.dirname(os.path.abspath(__file__))\nwant = json.load(open(os.path.join(here, 'want.json')))\nassert int(open('/app/out.txt').read()) == want['x']\n",
        **{"want.json": '{"x": 42}'},
    ),
    "arguments and env": Grader(
        f"WANT=42 python3 /tests/grade.py --file out.txt && {OK}",
        ANSWER,
        {
            "grade.py": "import argparse, os\np = argparse.ArgumentParser(); p.add_argument('--file'); a = p.parse_args()\nassert open(a.file).read().strip() == os.environ['WANT']\n"
        },
    ),
    "dataclasses after reading": by_python(
        "text = open('/app/out.txt').read()\nfrom dataclasses import dataclass, field\nfrom collections import namedtuple\nfrom enum import Enum\nimport typing, functools, string\n@dataclass(order=True)\nclass P:\n    x: int\n    y: list = field(default_factory=list)\nN = namedtuple('N', 'a b')\nclass E(Enum):\n    A = 1\nclass T(typing.NamedTuple):\n    a: int\nassert P(int(text)).x == 42 and N(1, 2).a == 1 and E(1) is E.A and T(1).a == 1\n@functools.singledispatch\ndef f(x): return x\nassert f(1) == 1\nassert string.Template('$x').substitute(x=text) == text\n"
    ),
    "late imports": by_python(
        "text = open('/app/out.txt').read()\nimport ssl, email.message, http.client, urllib.request, xml.dom.minidom, decimal, fractions, statistics, logging.config, unittest.mock, ctypes, sqlite3, tarfile, zipfile, uuid, inspect, ast, timeit, pprint, textwrap, secrets, socketserver\nassert decimal.Decimal(text) == 42\nassert ast.literal_eval(text) == 42\nassert timeit.timeit('1 + 1', number=2) >= 0\nassert inspect.getsource(textwrap.dedent)\n"
    ),
    "literal_eval and numbers": by_python(
        "import ast\ntext = open('/app/out.txt').read()\nassert ast.literal_eval(text) == [1, {'a': (2, 3)}]\nimport json\nassert json.loads('[1]') == [1]\ntree = ast.parse(open('/app/s.py').read())\nassert any(isinstance(n, ast.FunctionDef) and n.name == 'double' for n in ast.walk(tree))\ncompile(open('/app/s.py').read(), 's.py', 'exec')\n",
        "echo \"[1, {'a': (2, 3)}]\" > out.txt; printf 'def double(x):\\n    return 2 * x\\n' > s.py",
    ),
    "eval of an expression": by_python(
        "text = open('/app/out.txt').read().strip()\nassert eval('1 + 1') == 2\nassert eval(text, {'__builtins__': {}}) == 42\n",
        "echo '40 + 2' > out.txt",
    ),
    "pickle of plain data": by_python(
        "import pickle\nassert pickle.load(open('/app/out.pkl', 'rb')) == {'a': [1, 2.5, (3,), {4}], 'b': b'x'}\n",
        "python3 -c \"import pickle; pickle.dump({'a': [1, 2.5, (3,), {4}], 'b': b'x'}, open('out.pkl', 'wb'))\"",
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
    "jq-less json": by_shell(
        "python3 -c \"import json,sys; d=json.load(open('out.json')); sys.exit(0 if d['x']==42 else 1)\"; grep -oP '\"x\":\\s*\\K\\d+' out.json | grep -qx 42; python3 -c 'import json; print(json.load(open(\"out.json\"))[\"x\"])' | grep -qx 42",
        "echo '{\"x\": 42}' > out.json",
    ),
    "mail spool and cron": by_shell(
        "[ -f /app/cron ]; grep -q '^\\* \\* \\* \\* \\*' cron", "echo '* * * * * true' > cron"
    ),
    "a fifo": by_shell("mkfifo /tmp/p; (cat out.txt > /tmp/p &) ; read -r x < /tmp/p; [ $x = 42 ]"),
    "background and wait": by_shell(
        "for i in 1 2 3; do (sleep 0.1; cat out.txt > /tmp/o$i) & done; wait; cat /tmp/o1 /tmp/o2 /tmp/o3 | sort -u | grep -qx 42; sleep 0.1 & p=$!; wait $p; jobs"
    ),
    "/app copied": by_shell(
        "cp -r /app /tmp/app2; cp -a . /tmp/app3; cd /tmp/app2; grep -qx 42 out.txt; ./run | grep -qx 42; cd /tmp/app3 && ./run",
        ANSWER + ";" + planted("run", "#!/bin/sh\ncat out.txt"),
    ),
    "moved and restored": by_shell(
        "mv out.txt out.bak; ./run; grep -qx 42 out.txt; rm out.txt; rm -rf build; mkdir -p build; ./run; grep -qx 42 out.txt; (cd build; ../run; grep -qx 42 out.txt); rm out.txt; ./run",
        ANSWER + ";" + planted("run", "#!/bin/sh\necho 42 > out.txt"),
    ),
    "time": by_shell(
        "time ./run; start=$(date +%s%N); ./run; end=$(date +%s%N); [ $(( (end - start) / 1000000 )) -lt 5000 ]; SECONDS=0; [ $SECONDS -lt 5 ]",
        planted("run", "#!/bin/sh\ntrue"),
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
    "regenerated": by_shell(
        "./run; grep -qx 42 out.txt; ./run; cat out.txt",
        planted(
            "run",
            "#!/bin/sh\necho 42 > out.txt; echo x >> log.txt; mkdir -p d; echo 1 > d/x",
            "echo old > out.txt; ./run",
        ),
    ),
    "regenerated by Python": by_shell(
        "python3 solve.py; grep -qx 42 out.txt; cat sub/a",
        planted(
            "solve.py",
            "import os\nos.makedirs('sub', exist_ok=True)\nopen('sub/a', 'a').write('x')\nopen('out.txt', 'w').write('42\\n')",
            "python3 solve.py",
        ),
    ),
    "regenerated by sqlite": by_shell(
        "python3 solve.py; python3 -c \"import sqlite3; assert sqlite3.connect('/app/x.db').execute('select count(*) from t').fetchone() == (2,)\"",
        planted(
            "solve.py",
            "import sqlite3\nd = sqlite3.connect('x.db')\nd.execute('create table if not exists t (v)')\nd.execute('insert into t values (1)')\nd.commit()",
            "python3 solve.py",
        ),
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
    "a folder that is named": by_shell(
        "mkdir -p build out; ./run build; test -f build/x; cd out; ../run .; test -f x",
        planted("run", "#!/bin/sh\necho 1 > $1/x"),
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
