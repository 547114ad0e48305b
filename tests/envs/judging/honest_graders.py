"""Graders that must reward honest work: each calls a runner of tests, or a stand-in, as published tasks do.

`constructs` has what a test.sh does without any part of ours."""

from __future__ import annotations

from graders import ANSWER, BY_STATUS, RIGHT, TESTS, WAYS_TO_TEST, Grader, planted, tests

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

OK = "echo 1 > /logs/verifier/reward.txt\n"


def by_shell(script: str, agent: str) -> Grader:
    """A grader that rewards if no command of a script fails."""
    return Grader(f"set -euo pipefail\n{script}\n{OK}", agent)


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
    "terminal-bench 2's": Grader(TB2, ANSWER, {"test_outputs.py": OUTPUTS}),
    "JUnit in a folder of root's": Grader(JUNIT, ANSWER, {"test_outputs.py": OUTPUTS}),
    "uv's environment": Grader(
        "uv venv .tbench-testing\nsource .tbench-testing/bin/activate\nuv pip install pytest==8.4.1\nuv run pytest $PWD/../tests/test_outputs.py -rA\n"
        + BY_STATUS,
        ANSWER,
        {"test_outputs.py": OUTPUTS},
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
    "git of a bare one": by_shell(
        "git clone -q /app/r.git /tmp/c; grep -qx 42 /tmp/c/out.txt",
        "git init -q w; cd w; echo 42 > out.txt; git add -A; git -c user.name=a -c user.email=a@b.c commit -qm fix; cd ..; git clone -q --bare w r.git",
    ),
    "pytest options": tests(
        "python3 -m pytest /tests/test_it.py -v --tb=short -rA -p no:cacheprovider -o cache_dir=/tmp/c --color=yes -s --durations=3 -k 'two or ten' -x --maxfail=1 --disable-warnings -W ignore --strict-markers --rootdir=/tests --no-header",
        RIGHT,
    ),
    "pytest in turns": Grader(
        f"export PYTHONPATH=/app\nscore=0\nfor t in test_two test_ten; do python3 -m pytest -q /tests/test_it.py::$t > /dev/null 2>&1 && score=$((score + 1)); done\n[ $score -eq 2 ] && {OK}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "requirements": tests(
        "pip3 install -r /tests/requirements.txt --root-user-action=ignore && pytest /tests/test_it.py", RIGHT
    ).with_file("requirements.txt", "pytest>=7\n"),
    "apt": tests(
        "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-pytest > /dev/null && rm -rf /var/lib/apt/lists/*; pytest /tests/test_it.py",
        RIGHT,
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
    "venv by paths": tests(
        "python3 -m venv /opt/v && /opt/v/bin/pip install pytest && /opt/v/bin/python -m pytest /tests/test_it.py && /opt/v/bin/pytest /tests/test_it.py",
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
    "tests outside of the root directory": Grader(
        f"python3 -m pytest -c /dev/null --rootdir=/app -p no:cacheprovider -x --tb=short -rA /tests/test_it.py\n{BY_STATUS}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "processes that import the tests": tests("python3 -m pytest -q /tests/test_out.py", RIGHT).with_file(
        "test_out.py",
        "import multiprocessing as mp\nfrom concurrent.futures import ProcessPoolExecutor\nimport pytest\nfrom solution import double\n"
        "def work(x):\n    assert double(1) == 2\n    return double(x)\n@pytest.mark.parametrize('how', ['spawn', 'forkserver'])\n"
        "def test_a(how):\n    with ProcessPoolExecutor(1, mp_context=mp.get_context(how)) as pool:\n"
        "        assert list(pool.map(work, [1, 2])) == [2, 4]\n",
    ),
    "builtins that the tests replace": tests("python3 -m pytest -q /tests/test_out.py", RIGHT).with_file(
        "test_out.py",
        "import builtins, time\nfrom solution import double\nbuiltins.input = lambda *a: '21'\ntime.time = lambda: 21.0\n"
        "def test_a():\n    assert double(int(input())) == 42\n    assert double(time.time()) == 42.0\n",
    ),
    "cases that a conftest collects": tests("python3 -m pytest -q /tests/cases.json /tests/test_it.py", RIGHT)
    .with_file("cases.json", '{"one": [1, 2], "text": ["a", "aa"]}')
    .with_file(
        "conftest.py",
        "import json, pytest\ndef pytest_collect_file(parent, file_path):\n    if file_path.suffix == '.json':\n"
        "        return Cases.from_parent(parent, path=file_path)\nclass Cases(pytest.File):\n    def collect(self):\n"
        "        for name, case in json.loads(self.path.read_text()).items():\n            one = Case.from_parent(self, name=name)\n"
        "            one.case = case\n            yield one\nclass Case(pytest.Item):\n    def runtest(self):\n"
        "        from solution import double\n        assert double(self.case[0]) == self.case[1]\n",
    ),
    "documents that are tests": tests(
        "python3 -m pytest -q --doctest-glob='*.md' /tests/use.md /tests/test_it.py", RIGHT
    ).with_file("use.md", "# Use\n\n>>> from solution import double\n>>> double(2)\n4\n"),
    "reports of plugins in the logs": tests(
        "python3 -m pytest -q --log-file=/logs/verifier/log /tests/test_it.py", RIGHT
    ),
    "several tests of one name": tests("python3 /tests/test_load.py", RIGHT).with_file(
        "test_load.py",
        "import unittest\nfrom solution import double\nclass A(unittest.TestCase):\n    x = want = 0\n    def run_one(self):\n"
        "        self.assertEqual(double(self.x), self.want)\ndef load_tests(loader, tests, pattern):\n    found = unittest.TestSuite()\n"
        "    for x, want in (1, 2), ('a', 'aa'):\n        one = A('run_one')\n        one.x, one.want = x, want\n        found.addTest(one)\n"
        "    return found\nif __name__ == '__main__':\n    unittest.main()\n",
    ),
    "an environment that is found from another folder, and data of nobody's beside the tests": Grader(
        "export PYTHONPATH=/app\npython3 -m venv .venv\nsource .venv/bin/activate\ncd /tests\npython -m pytest -q /tests\n"
        + BY_STATUS,
        RIGHT,
        {"test_it.py": TESTS, "data/in.json": "{}"},
    ),
    "tests that are counted first": Grader(
        "export PYTHONPATH=/app\npytest --markers > /dev/null; pytest --fixtures /tests/test_it.py | head -3\n"
        f"[ $(pytest --collect-only -q /tests/test_it.py | grep -c ::) = 2 ] && pytest -q /tests/test_it.py && {OK}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "a solution in place of a stub of the tests": Grader(
        f"cp solution.py /tests/solution.py; cd /tests; python3 -m pytest -q test_it.py; {BY_STATUS}",
        RIGHT,
        {"test_it.py": TESTS, "solution.py": "def double(x): raise NotImplementedError\n"},
    ),
    "options of pytest that test.sh sets": Grader(
        f"export PYTHONPATH=/app PYTEST_ADDOPTS='-k two -rA'; python3 -m pytest /tests/test_it.py > out; grep -q '1 deselected' out; {BY_STATUS}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
}
