"""What a test.sh of published tasks does, and an image with the programs that it calls.

The base image lacks make, npm and coverage, and there is no network to fetch them from: in their place the image has
small fakes of these names, which run what a project's own file says, as the real ones do. `REAL` is for an image with
Debian's packages."""

from __future__ import annotations

FAKES = {
    "make": """\
target=${1:-all}
python3 - "$target" << 'END' | sh -e
import re, sys
rules = re.findall(r'^(\\S+):.*\\n((?:\\t.*\\n?)*)', open('Makefile').read(), re.M)
print('\\n'.join(line.strip() for name, body in rules if name == sys.argv[1] for line in body.splitlines()))
END
""",
    "npm": "sh -c \"$(python3 -c \"import json; print(json.load(open('package.json'))['scripts']['test'])\")\"\n",
}
COVERAGE = """\
import runpy, sys
if sys.argv[1] == 'run':
    sys.argv = ['pytest', *sys.argv[4:]]
    try:
        runpy.run_module('pytest', run_name='__main__', alter_sys=True)
    finally:
        open('.coverage', 'w').write('solution.py 100%')
print(open('.coverage').read())
"""
CTRF = """\
import json
def pytest_addoption(parser):
    parser.addoption('--ctrf')
class Report:
    def __init__(self, path): self.path, self.tests = path, []
    def pytest_runtest_logreport(self, report):
        if report.when == 'call': self.tests.append({'name': report.nodeid, 'status': report.outcome})
    def pytest_sessionfinish(self):
        json.dump({'results': {'summary': {'passed': len(self.tests)}, 'tests': self.tests}}, open(self.path, 'w'))
def pytest_configure(config):
    if config.option.ctrf: config.pluginmanager.register(Report(config.option.ctrf))
"""
PACKAGES = "/usr/lib/python3/dist-packages"
DOCKERFILE = f"""\
FROM atropos-agent/base:debian12
COPY fakes/ /usr/local/bin/
COPY coverage.py {PACKAGES}/coverage/__main__.py
COPY ctrf.py {PACKAGES}/ctrf.py
RUN chmod +x /usr/local/bin/* && touch {PACKAGES}/coverage/__init__.py && mkdir {PACKAGES}/pytest_json_ctrf-1.0.dist-info \\
    && printf '[pytest11]\\nctrf = ctrf\\n' > {PACKAGES}/pytest_json_ctrf-1.0.dist-info/entry_points.txt \\
    && printf 'Metadata-Version: 2.1\\nName: pytest-json-ctrf\\nVersion: 1.0\\n' > {PACKAGES}/pytest_json_ctrf-1.0.dist-info/METADATA \\
    && python3 -m venv --without-pip --system-site-packages /opt/venv && useradd -m tester
WORKDIR /app
"""
REWARD = "/logs/verifier/reward.txt"
WORK = """\
printf 'def double(x):\\n    return 2 * x\\n\\nif __name__ == "__main__":\\n    print(double(int(input())))\\n' > solution.py
printf 'test:\\n\\tpython3 -m pytest -q /tests/test_it.py\\n' > Makefile
printf '{"scripts": {"test": "echo 21 | python3 solution.py | grep -x 42"}}' > package.json
printf 'A=one\\nB="two words"\\n' > .env; echo 42 > out.txt; chmod 640 out.txt
"""
TESTS = {
    "test_it.py": """\
import pytest
from solution import double

@pytest.mark.parametrize("x, twice", [(2, 4), ("a b", "a ba b"), (0.5, 1.0)])
def test_rows(x, twice):
    assert double(x) == twice

class TestIt:
    def test_list(self):
        assert double([1]) == [1, 1]

def test_skipped():
    pytest.skip("not today")
""",
    "test_cases.py": """\
import unittest
from solution import double

class Cases(unittest.TestCase):
    def test_two(self):
        self.assertEqual(double(2), 4)

if __name__ == "__main__":
    unittest.main()
""",
    "run.py": "import subprocess, sys\nsys.exit(subprocess.call([sys.executable, '-m', 'pytest', '-q', '/tests/test_it.py']))\n",
    "plugin.py": "def pytest_terminal_summary(terminalreporter):\n    terminalreporter.write_line('said by the plugin')\n",
    "lib.sh": 'check() { [ "$1" = "$2" ] && echo "ok $1" || { echo "not ok $1"; return 1; }; }\n',
    "config.json": '{"want": 42}',
}
PYTEST = "export PYTHONPATH=/app\npython3 -m pytest"
DECIDE = f"[ $? -eq 0 ] && echo 1 > {REWARD} || echo 0 > {REWARD}\n"
JUNIT = """\
export PYTHONPATH=/app
python3 -m pytest -q -o junit_family=FAMILY --junitxml=/tmp/r.xml /tests/test_it.py
python3 - << 'END'
import xml.etree.ElementTree as tree
suite = tree.parse('/tmp/r.xml').getroot().find('testsuite')
print({k: v for k, v in suite.attrib.items() if k not in ('time', 'timestamp', 'hostname')})
for case in suite: print({k: v for k, v in case.attrib.items() if k != 'time'}, [one.tag for one in case])
open('/logs/verifier/reward.txt', 'w').write(str(int(suite.get('failures') == '0')))
END
"""

CONSTRUCTS: dict[str, str] = {
    "set -euo pipefail": f"set -euo pipefail\nfalse || echo went on\ncat out.txt | grep -x 42\necho 1 > {REWARD}\n",
    "a set -e that ends it": f"set -e\necho 0.25 > {REWARD}\ngrep -q nothing out.txt\necho 1 > {REWARD}\n",
    "traps": f"trap 'echo 1 > {REWARD}; echo ended $?' EXIT\ntrap 'echo failed at $LINENO' ERR\nset -E\nfalse\n(exit 3)\ntrue\n",
    "a virtual environment of the image": f"source /opt/venv/bin/activate\necho $VIRTUAL_ENV; which python\n"
    f"python -c 'import sys; print(sys.prefix)'\nexport PYTHONPATH=/app\npython -m pytest -q /tests/test_it.py\n{DECIDE}",
    "a virtual environment that it makes": "python3 -m venv --without-pip --system-site-packages /tmp/v\n. /tmp/v/bin/activate\n"
    f"python -c 'import sys; print(sys.prefix)'\nexport PYTHONPATH=/app\npython -m pytest -q /tests/test_it.py\n{DECIDE}deactivate; which python3\n",
    "a parser in a here-document": f"python3 - << 'END'\nimport json\nwant = json.load(open('/tests/config.json'))['want']\n"
    f"ok = int(open('/app/out.txt').read()) == want\nprint(want, ok)\nopen('{REWARD}', 'w').write(str(int(ok)))\nEND\n",
    "a grader that imports the solution": f'cd /app\npython3 -c "from solution import double; print(double(4)); assert double(4) == 8"\n{DECIDE}',
    "a grader that runs the solution": "python3 - << 'END'\nimport subprocess, sys\n"
    "ran = subprocess.run([sys.executable, 'solution.py'], input='21', capture_output=True, text=True)\n"
    f"print(ran)\nopen('{REWARD}', 'w').write(str(int(ran.stdout == '42\\n')))\nEND\n",
    "a grader that compiles the solution": "python3 -m py_compile solution.py && ls __pycache__ && python3 - << 'END'\nnames = {}\n"
    f"exec(compile(open('solution.py').read(), 'solution.py', 'exec'), names)\nprint(names['double'](3))\nopen('{REWARD}', 'w').write('1')\nEND\n",
    "a grader in bash that runs the solution": '. "$(dirname "$0")/lib.sh"\nfor n in 1 2 3; do check "$(echo $n | python3 solution.py)" $((n * 2)) || exit 1; done\n'
    f"echo 1 > {REWARD}\n",
    "su": f"chmod 644 out.txt\nsu tester -c 'id -un; cat /app/out.txt'\nsu - tester -c 'pwd'\nrunuser -u nobody -- id -un\n{DECIDE}",
    "chown and useradd": "useradd -m other && chown -R other:other out.txt && stat -c '%U %a' out.txt\necho 'x:x:999:999::/:/bin/sh' >> /etc/passwd\n"
    f"getent passwd x; chmod 600 out.txt; cat out.txt; id -u; umask\n{DECIDE}",
    "a server": 'python3 -m http.server 8123 > /tmp/log 2>&1 &\npid=$!\nfor i in $(seq 50); do python3 -c "import urllib.request as u; '
    "print(u.urlopen('http://127.0.0.1:8123/out.txt').read())\" 2> /dev/null && break; sleep 0.2; done\n"
    f"kill $pid; wait $pid; echo ended with $?\necho 1 > {REWARD}\n",
    "a loop as cron has": "(while :; do date +%s > /tmp/beat; sleep 0.1; done) &\nloop=$!\nsleep 0.5; [ -s /tmp/beat ] && echo beats\nkill $loop\n"
    f"wait $loop 2> /dev/null; echo $?; echo 1 > {REWARD}\n",
    "few descriptors": f"ulimit -n 128\n{PYTEST} -q /tests/test_it.py\n{DECIDE}",
    "make test": f"export PYTHONPATH=/app\nmake test\n{DECIDE}",
    "npm test": f"npm test\n{DECIDE}",
    "a plugin of pytest": f"export PYTHONPATH=/app:/tests\npython3 -m pytest -q -p plugin /tests/test_it.py\n{DECIDE}",
    "JUnit of the first family": JUNIT.replace("FAMILY", "xunit1"),
    "JUnit of the second family": JUNIT.replace("FAMILY", "xunit2"),
    "CTRF": f"{PYTEST} -q --ctrf /tmp/c.json /tests/test_it.py\n{DECIDE}cat /tmp/c.json\n",
    "coverage": f"export PYTHONPATH=/app\npython3 -m coverage run -m pytest -q /tests/test_it.py\n{DECIDE}python3 -m coverage report\n",
    "a parser of -rA lines": f"{PYTEST} -rA /tests/test_it.py > /tmp/out 2>&1\ngrep -E '^(PASSED|SKIPPED)' /tmp/out\n"
    f"grep -qx 'PASSED ../tests/test_it.py::test_rows\\[a b-a ba b\\]' /tmp/out\n{DECIDE}",
    "-v to a file by tee": f"set -o pipefail\n{PYTEST} -v /tests/test_it.py 2>&1 | tee /logs/verifier/out.txt\n{DECIDE}grep -c PASSED /logs/verifier/out.txt\n",
    "renames in the working directory": "sed -i s/42/43/ out.txt; cat out.txt; mv out.txt out.old; python3 -c \"import os; os.replace('out.old', 'new.txt')\"\n"
    f"ls; mv solution.py solution.1; touch solution.py; ls -l new.txt | cut -c1-10; mv solution.1 solution.py\necho 1 > {REWARD}\n",
    "unittest": f"cd /tests; export PYTHONPATH=/app\npython3 -m unittest -v test_cases; echo $?\npython3 -m unittest discover -p 'test_c*.py'\n{DECIDE}",
    "a unittest script": f"export PYTHONPATH=/app\npython3 /tests/test_cases.py -v\n{DECIDE}",
    "a script that starts pytest": f"export PYTHONPATH=/app\npython3 /tests/run.py | tail -1; status=${{PIPESTATUS[0]}}\necho $status; [ $status = 0 ]\n{DECIDE}",
    "output into tee for all": f"exec > >(tee /logs/verifier/all.txt) 2>&1\n{PYTEST} -q /tests/test_it.py\n{DECIDE}",
    "time limits and signals": f"timeout 0.3 sleep 9; echo $?\nbash -c 'kill -TERM $$'; echo $?\nulimit -n 200; ulimit -n\nsetsid true; echo 1 > {REWARD}\n",
    "settings of a file": f'set -a; . ./.env; set +a\npython3 -c \'import os; print(os.environ["A"], os.environ["B"])\'\neval "echo $B"; echo 1 > {REWARD}\n',
    "a share of the reward": f"echo '{{\"reward\": 0.5}}' > {REWARD.replace('txt', 'json')}\nexit 7\n",
    "tests that fail": f"echo 'double = str' > solution.py\n{PYTEST} -q /tests/test_it.py > /tmp/out 2>&1\nstatus=$?\n"
    "grep -E '^FAILED' /tmp/out | cut -d' ' -f1,2\ntail -1 /tmp/out\n[ $status = 0 ]\n" + DECIDE + "exit $status\n",
}

PACKAGES_OF_REAL = "make cmake g++ golang-go cargo npm python3-coverage tox nox"
REAL_DOCKERFILE = f"""\
FROM atropos-agent/base:debian12
RUN apt-get update && apt-get install -y --no-install-recommends {PACKAGES_OF_REAL}
WORKDIR /app
"""
REAL_WORK = (
    WORK
    + """\
mkdir -p c go rust/src
printf 'int twice(int x) { return 2 * x; }\n' > c/twice.c
printf 'package twice\nfunc Twice(x int) int { return 2 * x }\n' > go/twice.go; printf 'module twice\ngo 1.19\n' > go/go.mod
printf 'pub fn twice(x: i32) -> i32 { 2 * x }\n' > rust/src/lib.rs
printf '[package]\nname = "twice"\nversion = "0.1.0"\nedition = "2021"\n' > rust/Cargo.toml
printf 'exports.twice = (x) => 2 * x;\n' > twice.js
"""
)
REAL_TESTS = {
    **TESTS,
    "tox.ini": """\
[tox]
skipsdist = true
envlist = py
[testenv]
sitepackages = true
setenv = PYTHONPATH = /app
commands = python -m pytest -q /tests/test_it.py
""",
    "noxfile.py": """\
import nox
@nox.session(venv_params=["--system-site-packages"])
def tests(session):
    session.run("python", "-m", "pytest", "-q", "/tests/test_it.py", env={"PYTHONPATH": "/app"})
@nox.session(venv_backend="none")
def plain(session):
    session.run("python3", "-m", "unittest", "-v", "test_cases", env={"PYTHONPATH": "/app:/tests"})
""",
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.20)
project(twice C)
enable_testing()
add_executable(check check.c /app/c/twice.c)
add_test(NAME four COMMAND check 2 4)
add_test(NAME six COMMAND check 3 6)
""",
    "check.c": "#include <stdlib.h>\nint twice(int);\nint main(int n, char **a) { return twice(atoi(a[1])) != atoi(a[2]); }\n",
    "twice_test.go": 'package twice\nimport "testing"\nfunc TestTwice(t *testing.T) { if Twice(2) != 4 { t.Fail() } }\n',
    "twice.rs": "#[test]\nfn four() { assert_eq!(twice::twice(2), 4); }\n",
    "twice.test.js": "const { twice } = require('/app/twice.js');\nrequire('node:test')('four', () => require('assert').equal(twice(2), 4));\n",
}
REAL: dict[str, str] = {
    "make": f"export PYTHONPATH=/app\nmake test\n{DECIDE}",
    "tox": f"tox -q -c /tests/tox.ini --workdir /tmp/tox\n{DECIDE}",
    "nox": f"nox -f /tests/noxfile.py --envdir /tmp/nox\n{DECIDE}",
    "an environment of virtualenv's": f"virtualenv -q /tmp/v\ncp -r {PACKAGES}/*/ /tmp/v/lib/python3*/site-packages/\n"
    f"export PYTHONPATH=/app\n/tmp/v/bin/python -m pytest -q /tests/test_it.py\n{DECIDE}",
    "npm test": f"npm test\n{DECIDE}",
    "node --test": f"node --test /tests/twice.test.js | grep -E '^# (pass|fail)'\n[ ${{PIPESTATUS[0]}} = 0 ]\n{DECIDE}",
    "cargo test": f"mkdir rust/tests; cp /tests/twice.rs rust/tests/; cd rust; cargo test --offline -q\n{DECIDE}",
    "go test": f"cp /tests/twice_test.go go/; cd go; GOCACHE=/tmp/go go test -v ./...\n{DECIDE}",
    "ctest": "cmake -S /tests -B /tmp/b > /dev/null && cmake --build /tmp/b > /dev/null && ctest --test-dir /tmp/b\n"
    + DECIDE,
    "coverage": f"export PYTHONPATH=/app\npython3 -m coverage run --source=/app -m pytest -q /tests/test_it.py\n{DECIDE}python3 -m coverage report\n",
    "coverage of unittest": "cd /tests; export PYTHONPATH=/app COVERAGE_FILE=/tmp/c\n"
    f"python3 -m coverage run --source=/app -m unittest test_cases\n{DECIDE}python3 -m coverage report\n",
}
