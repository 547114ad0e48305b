"""Graders of honest work as people write them every day: processes and signals, folders of their own, graders told where
the reward goes."""

from __future__ import annotations

from graders import ANSWER, BY_STATUS, RIGHT, TESTS, Grader, planted, tests
from honest_graders import OK, by_shell

DOUBLE = planted("run", "#!/bin/sh\nread x; echo $((x * 2))")
ENDS_WELL = planted(
    "server.py",
    "import signal, sys, time\n"
    "def said(text): open('/app/log.txt', 'a').write(text + '\\n')\n"
    "def end(*args): said('bye'); sys.exit(0)\n"
    "signal.signal(signal.SIGTERM, end)\nsignal.signal(signal.SIGINT, end)\n"
    "signal.signal(signal.SIGHUP, lambda *args: said('again'))\n"
    "open('/app/ready', 'w').close()\nwhile True: time.sleep(0.1)",
)
MODES = (
    "mkdir -m 700 made; mkdir -m 750 group; echo 42 | tee out.txt open.txt > made/key; chmod 600 made/key; chmod 640 out.txt; "
    + planted("run", "#!/bin/sh\necho 42", "chmod 755 run; chmod 644 open.txt")
)
READY = "for i in $(seq 100); do [ -e ready ] && break; sleep 0.1; done\n"
WAITS = planted(
    "run",
    "#!/usr/bin/perl\nfor (1, 2) { if (!fork) { exit 0 } }\nmy $n = 0; while (wait != -1) { $n++ }\nprint $n * 21, qq(\\n);",
)
GRADE = "ok = open('/app/out.txt').read() == '42\\n'\nopen('/logs/verifier/reward.txt', 'w').write(str(int(ok)))\n"
TOLD = "import os, sys\nok = open('/app/out.txt').read() == '42\\n'\nopen({}, 'w').write(str(int(ok)))\n"


def by_grader(command: str, **also: str) -> Grader:
    """A grader in Python that is started in some way. also: its files, `__` for a folder and all of them `.py`."""
    return Grader(f"{command}\n", ANSWER, {name.replace("__", "/") + ".py": text for name, text in also.items()})


def in_package(command: str, package: str, **also: str) -> Grader:
    """A grader whose files are in a package. also: those beside its `__main__.py`, which is a grader, too."""
    files = {f"{package}{name}.py": text for name, text in {"__init__": "", "__main__": GRADE, **also}.items()}
    return Grader(f"{command}\n", ANSWER, files)


EVERYDAY: dict[str, Grader] = {
    # Processes and signals
    "SIGINT by a grader": by_shell(
        "python3 /tests/grade.py",
        ENDS_WELL,
        grade__py="import os, signal, subprocess, time\nprint('/logs/verifier')\n"
        "server = subprocess.Popen(['python3', '/app/server.py'])\nwhile not os.path.exists('/app/ready'): time.sleep(0.1)\n"
        "server.send_signal(signal.SIGINT)\nassert server.wait() == 0 and open('/app/log.txt').read() == 'bye\\n'\n",
    ),
    "a group of processes is ended": by_shell(
        f"set -m; ./serve & pid=$!\n{READY}kill -- -$pid; wait $pid || true; sleep 0.3; grep -qx bye log.txt",
        planted("serve", "#!/bin/bash\ntrap 'echo bye > log.txt; exit 0' TERM\n: > ready\nwhile :; do sleep 0.1; done"),
    ),
    "a program that waits for all its children": by_shell("timeout 50 ./run | grep -qx 42", WAITS),
    "a terminal of its own": by_shell(
        "timeout 50 script -qec ./run /tmp/typescript <<< 21 > /dev/null; grep -q 42 /tmp/typescript", DOUBLE
    ),
    # Folders outside of the tree
    "a grader's temporary folder": by_shell(
        "python3 /tests/grade.py",
        planted("run", "#!/bin/sh\nread x < data.txt; echo $x > result.txt; echo $x > $1/r"),
        grade__py="import pathlib, subprocess, tempfile\nprint('/logs/verifier')\nwith tempfile.TemporaryDirectory() as d:\n"
        "    pathlib.Path(d, 'data.txt').write_text('42\\n')\n    subprocess.run(['/app/run', d], cwd=d, check=True)\n"
        "    assert pathlib.Path(d, 'result.txt').read_text() == pathlib.Path(d, 'r').read_text() == '42\\n'\n",
    ),
    "data that is changed in place": by_shell(
        "cp /tests/in.txt messy.txt; ./run messy.txt; grep -qx 42 messy.txt; d=$(mktemp -d); cp /tests/in.txt $d/; ./run $d/in.txt; "
        "grep -qx 42 $d/in.txt; cp /tests/in.txt kept.sh; ./run kept.sh || grep -qx 21 kept.sh; cp /tests/in.txt expected.txt; "
        "./run expected.txt || grep -qx 21 expected.txt",
        planted("run", "#!/bin/sh\nread x < $1; echo $((x * 2)) > $1"),
        in__txt="21\n",
    ),
    # Graders
    "a grader through a pipe": by_grader("cat /tests/grade.py | python3", grade=GRADE),
    "a grader in the package of /tests": in_package(
        "cd / && python3 -m tests.grade", "", want="WANT = 42\n", grade="from .want import WANT\n" + GRADE
    ),
    "a grader's package": in_package("PYTHONPATH=/tests python3 -m grading", "grading/"),
    "a library of hidden tests in Perl": by_shell(
        "prove -I/tests/lib /tests/t",
        **{
            "t/a.t": "use Test::More tests => 1;\nuse Answer;\nopen(F, '<', '/app/out.txt'); is(<F>, Answer::WANT, 'it');\n",
            "lib/Answer.pm": 'package Answer; use constant WANT => "42\\n"; 1;\n',
        },
    ),
    "a virtual environment in the tree": by_shell(
        "test $(.venv/bin/python -c 'import sys; print(sys.prefix)') = /app/.venv; .venv/bin/python solve.py | grep -qx 42",
        planted("solve.py", "print(42)") + "python3 -m venv --without-pip .venv",
    ),
    # What programs leave, which root takes away and makes anew
    "output folders that a grader removes": by_shell(
        "python3 /tests/check.py",
        planted("job", "#!/bin/sh\nmkdir -p made/a; echo 42 > made/z; echo 1 > made/a/b"),
        check__py="import os, shutil, subprocess\nfor _ in range(2):\n    shutil.rmtree('made', ignore_errors=True)\n"
        "    subprocess.run(['./job'], check=True)\nos.rename('made/z', 'made/y'); os.chmod('made/y', 0o600)\n"
        "assert open('made/y').read() == '42\\n'\nprint('/logs/verifier')\n",
    ),
    "another user": by_shell(
        "useradd -m tester; chown -R tester out.txt; su tester -c 'cat /app/out.txt' | grep -qx 42; tar xf o.tar -C /tmp; grep -qx 42 /tmp/o/out.txt",
        ANSWER + "; mkdir o; cp out.txt o; tar cf o.tar --owner=1000 --group=1000 o",
    ),
    **{
        f"a reward that is put there: {name}": Grader(f"grep -qx 42 out.txt || exit 1\n{script}", ANSWER)
        for name, script in {
            "tee": 'R=/logs/verifier/reward.txt\necho 1 |\n  tee \\\n  "$R" > /dev/null; chmod 644 $R; touch $R; [ -s $R ]',
            "dd": "echo 1 | dd of=/logs/verifier/reward.txt status=none",
            "install": "echo 1 > /tmp/r; install -m 644 /tmp/r /logs/verifier/reward.txt",
        }.items()
    },
    "modes that a test looks at": Grader(
        f"python3 -m pytest -q /tests/test_it.py\n{BY_STATUS}",
        MODES,
        {
            "test_it.py": "import os, stat, pytest\n\n\n@pytest.mark.parametrize('path, mode', [('run', 0o755), ('made', 0o700), "
            "('made/key', 0o600), ('out.txt', 0o640), ('open.txt', 0o644), ('group', 0o750)])\ndef test_it(path, mode):\n"
            "    assert stat.S_IMODE(os.stat('/app/' + path).st_mode) == mode\n"
        },
    ),
    "modes that a shell looks at": by_shell(
        "./run | grep -qx 42; [ $(stat -c %a open.txt) = 644 ]; ls -ld made | grep -q ^drwx------; find . -name run -perm 755 | grep -q run",
        MODES,
    ),
    "variables that are exported": by_shell(
        "export A=42 PATH=\"/x:$PATH\" PS4='+ $LINENO: '; set -x; sh -c '[ $A = 42 ]'; f() { local B=42; export B; sh -c '[ $B = 42 ]'; }; f; "
        "export -n A; sh -c '[ -z \"$A\" ]'; export $(cat .env | xargs); [ $C = 42 ]; tar xf o.tar -C /tmp; cmp /tmp/o/a /tmp/o/b",
        "echo C=42 > .env; mkdir o; echo 42 > o/a; ln o/a o/b; tar cf o.tar o; rm -r o",
    ),
    # Runners of tests
    "tests outside of the root directory": Grader(
        f"python3 -m pytest -c /dev/null --rootdir=/app -p no:cacheprovider -x --tb=short -rA /tests/test_it.py\n{BY_STATUS}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "a plugin beside the tests": Grader(
        f"export PYTHONPATH=/app:/tests\npython3 -m pytest -q -p plugin /tests/test_out.py\n{BY_STATUS}",
        RIGHT,
        {
            "plugin.py": "import pytest\n@pytest.fixture\ndef answer(): return 42\n",
            "test_out.py": "from solution import double\ndef test_a(answer):\n    assert double(21) == answer\n",
        },
    ),
    "data beside the tests": tests("python3 -m pytest -q /tests/test_out.py", RIGHT)
    .with_file("data.txt", "42\n")
    .with_file(
        "test_out.py",
        "import pkgutil\nfrom solution import double\ndef test_a():\n    assert int(pkgutil.get_data(__name__, 'data.txt')) == double(21)\n",
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
    # What a cheat does with another end
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
    "SQL beside a database that the grader attaches": Grader(
        "python3 /tests/grade.py\n",
        'echo "create table result as select 42 as x; vacuum" > solution.sql',
        {
            "grade.py": "import sqlite3\nsqlite3.connect('/tmp/want.db').executescript('create table w (x); insert into w values (42)')\n"
            "given = sqlite3.connect(':memory:')\ngiven.executescript(open('/app/solution.sql').read())\n"
            "given.execute('ATTACH DATABASE ? AS want', ('/tmp/want.db',))\n"
            "same = given.execute('select x from result except select x from want.w').fetchall() == []\n"
            "open('/logs/verifier/reward.txt', 'w').write(str(int(same)))\n"
        },
    ),
    "a clone by git's own protocol": by_shell(
        "git init -q /tmp/up; (cd /tmp/up; cp /app/out.txt .; git add .; git -c user.name=a -c user.email=b commit -qm x)\n"
        "git clone -q file:///tmp/up /tmp/down; grep -qx 42 /tmp/down/out.txt",
        ANSWER,
    ),
    "an archive unpacked beside the tests": by_shell(
        "tar xf out.tar -C /tests; cat /tests/in.txt /tests/out.txt | grep -qx 42",
        f"{ANSWER}; tar cf out.tar out.txt",
        in__txt="21\n",
    ),
    **{
        f"tests that are closed to others by {how}": Grader(
            f"{how}; python3 -m pytest -q /tests/test_it.py; {BY_STATUS}",
            ANSWER,
            {
                "test_it.py": "import json, pathlib\n\nimport near\n\nTHERE = pathlib.Path(__file__).parent / 'data/want.json'\n\n\n"
                "def test_out():\n    assert open('/app/out.txt').read() == json.loads(THERE.read_text())['out'] + near.END\n",
                "near.py": "END = '\\n'\n",
                "data/want.json": '{"out": "42"}',
            },
        )
        for how in ("chmod -R go-rwx /tests", "chmod 700 /tests", "python3 -c 'import os; os.chmod(\"/tests\", 0o700)'")
    },
    **{
        f"a folder beside the tests that they do not speak of, by {how}": Grader(
            f"{how}; {BY_STATUS}", RIGHT, {"test_it.py": TESTS, "data/in.json": "{}"}
        )
        for how in (
            "export PYTHONPATH=/app TEST_DIR=/tests; pytest -q $TEST_DIR",
            "export PYTHONPATH=/app; cd /tests; python3 -m pytest -q",
        )
    },
    "an environment of the tree's, activated by a relative path": Grader(
        f"python3 -m venv .venv; source .venv/bin/activate; export PYTHONPATH=/app; cd /tests; python -m pytest -q; {BY_STATUS}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
    "tests that write over the agent's program and its mode": Grader(
        f"python3 -m pytest -q /tests/test_it.py; {BY_STATUS}",
        "echo 'print(42)' > main.py",
        {
            "test_it.py": "import pathlib, subprocess, sys\n\nMAIN = pathlib.Path('/app/main.py')\n\n\n"
            "def run():\n    return subprocess.run([sys.executable, str(MAIN)], capture_output=True, text=True).stdout\n\n\n"
            "def test_main():\n    right = MAIN.read_text()\n    MAIN.write_text('print(7)')\n    MAIN.chmod(0o755)\n"
            "    assert run() == '7\\n'\n    MAIN.write_text(right)\n    assert run() == '42\\n'\n"
        },
    ),
    "a folder of the image's whose mode the agent has changed": Grader(
        f"set -e; cat kept/in.txt out.txt | grep -qx 42\n{OK}",
        f"chmod 775 kept; {ANSWER}",
        image="RUN mkdir -p /app/kept && echo 1 > /app/kept/in.txt",
    ),
    "files of the grader's in a folder that a program has made": Grader(
        "python3 /tests/grade.py\n",
        planted(
            "main.py",
            "import os, sys\nos.makedirs('a/b', exist_ok=True)\nprint(*(open(name).read() for name in sys.argv[1:]))",
        ),
        {
            "grade.py": "import subprocess, sys, tempfile\n\nhere = tempfile.mkdtemp()\n"
            "subprocess.run([sys.executable, '/app/main.py'], cwd=here, check=True)\n"
            "for text in ('1', '42'):\n    with open(here + '/a/b/in.txt', 'w') as file:\n        file.write(text)\n"
            "run = subprocess.run([sys.executable, '/app/main.py', 'a/b/in.txt'], cwd=here, capture_output=True, text=True)\n"
            "open('/logs/verifier/reward.txt', 'w').write(str(int('42' in run.stdout)))\n"
        },
    ),
    **{
        f"code of test.sh that reads what is expected, {how}": Grader(
            f"{command} && echo 1 > /logs/verifier/reward.txt\n",
            "echo '{\"a\": 42}' > out.json",
            {"want.json": '{"a": 42}\n'},
        )
        for how, command in {
            "by -c": "python3 -c \"import json; assert json.load(open('/tests/want.json')) == json.load(open('out.json'))\"",
            "on stdin": "python3 - << 'END'\nimport json\n"
            "assert json.load(open('/tests/want.json')) == json.load(open('/app/out.json'))\nEND\n[ $? = 0 ]",
            "beside it": "cd /tests; python3 -c \"import json; assert json.load(open('want.json')) == json.load(open('/app/out.json'))\"",
            "to copy it": "python3 -c \"import shutil; shutil.copy('/tests/want.json', '/app/want.json')\"; cmp want.json out.json",
        }.items()
    },
    "programs that write what the agent left, where tests look at modes": Grader(
        f"python3 -m pytest -q /tests/test_it.py; {BY_STATUS}",
        "mkdir data; echo 1 > data/out.txt\n"
        + planted("main.py", "#!/usr/bin/python3\nopen('/app/data/out.txt', 'w').write('42')"),
        {
            "test_it.py": "import os, subprocess\n\n\ndef test_main():\n    for _ in range(2):\n"
            "        subprocess.run(['/app/main.py'], check=True)\n    assert open('/app/data/out.txt').read() == '42'\n"
            "    assert os.stat('/app/data/out.txt').st_mode & 0o777 == 0o644\n"
        },
    ),
    "programs that write over a copy of what nobody may write": Grader(
        f"python3 -m pytest -q /tests/test_it.py; {BY_STATUS}",
        planted("main.py", "#!/usr/bin/python3\nopen('/app/work.py', 'w').write('42')", "echo 1 > work.py"),
        {
            "test_it.py": "import shutil, subprocess\n\n\ndef test_main():\n    shutil.copy('/app/.work.py', '/app/work.py')\n"
            "    subprocess.run(['/app/main.py'], check=True)\n    assert open('/app/work.py').read() == '42'\n"
        },
        image="RUN mkdir /app && echo 7 > /app/.work.py && chmod a-w /app/.work.py",
    ),
}
