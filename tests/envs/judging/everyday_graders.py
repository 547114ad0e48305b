"""Graders of honest work as people write them every day: processes and signals, folders of their own, graders told where
the reward goes."""

from __future__ import annotations

from graders import ANSWER, RIGHT, TESTS, Grader, planted
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
READY = "for i in $(seq 100); do [ -e ready ] && break; sleep 0.1; done\n"
WAITS = planted(
    "run",
    "#!/usr/bin/perl\nfor (1, 2) { if (!fork) { exit 0 } }\nmy $n = 0; while (wait != -1) { $n++ }\nprint $n * 21, qq(\\n);",
)
GRADE = "ok = open('/app/out.txt').read() == '42\\n'\nopen('/logs/verifier/reward.txt', 'w').write(str(int(ok)))\n"
TOLD = "import os, sys\nok = open('/app/out.txt').read() == '42\\n'\nopen({}, 'w').write(str(int(ok)))\n"
COPIED = (
    planted("run", "#!/bin/sh\necho 42 > result.txt; mkdir -p d; echo x > d/x; echo new >> notes") + "echo old > notes"
)


def by_grader(command: str, **also: str) -> Grader:
    """A grader in Python that is started in some way. also: its files, `__` for a folder and all of them `.py`."""
    return Grader(f"{command}\n", ANSWER, {name.replace("__", "/") + ".py": text for name, text in also.items()})


def in_package(command: str, package: str, **also: str) -> Grader:
    """A grader whose files are in a package. also: those beside its `__main__.py`, which is a grader, too."""
    files = {f"{package}{name}.py": text for name, text in {"__init__": "", "__main__": GRADE, **also}.items()}
    return Grader(f"{command}\n", ANSWER, files)


EVERYDAY: dict[str, Grader] = {
    # Processes and signals
    "SIGTERM ends a server well": by_shell(
        f"python3 server.py & pid=$!\n{READY}kill -TERM $pid; wait $pid; grep -qx bye log.txt", ENDS_WELL
    ),
    "SIGHUP is handed on": by_shell(
        f"python3 server.py & pid=$!\n{READY}kill -HUP $pid; sleep 0.5; grep -qx again log.txt; kill $pid; wait $pid",
        ENDS_WELL,
    ),
    "SIGINT by timeout": by_shell(
        "timeout -s INT --preserve-status 4 python3 server.py; grep -qx bye log.txt", ENDS_WELL
    ),
    "a group of processes is ended": by_shell(
        f"set -m; ./serve & pid=$!\n{READY}kill -- -$pid; wait $pid || true; sleep 0.3; grep -qx bye log.txt",
        planted("serve", "#!/bin/bash\ntrap 'echo bye > log.txt; exit 0' TERM\n: > ready\nwhile :; do sleep 0.1; done"),
    ),
    "a grader sees what signal a program died of": by_shell(
        "set +e; ./run; [ $? -eq 134 ] || exit 1; set -e; python3 /tests/grade.py",
        planted("run", "#!/bin/sh\nkill -ABRT $$"),
        grade__py="import subprocess\nprint('/logs/verifier')\nassert subprocess.run(['/app/run']).returncode == -6\n",
    ),
    "a program without end into head": by_shell(
        "set +o pipefail; timeout 20 ./run | head -2 | grep -qx y",
        planted("run", "#!/bin/sh\nwhile :; do echo y; done"),
    ),
    "a program that waits for all its children": by_shell("timeout 20 ./run | grep -qx 42", WAITS),
    "a terminal of its own": by_shell(
        "timeout 20 script -qec ./run /tmp/typescript <<< 21 > /dev/null; grep -q 42 /tmp/typescript", DOUBLE
    ),
    # Folders outside of the tree
    "run in a folder of mktemp": by_shell(
        'work=$(mktemp -d); cp /tests/in.txt "$work/data.txt"; cd "$work"; /app/run; grep -qx 42 result.txt',
        planted("run", "#!/bin/sh\nread x < data.txt; echo $((x * 2)) > result.txt"),
        in__txt="21\n",
    ),
    "output into a folder of mktemp": by_shell(
        'out=$(mktemp -d); ./run "$out"; grep -qx 42 "$out/a/b"; other=$(mktemp -d); ./run $other; diff -r $out $other',
        planted("run", '#!/bin/sh\nmkdir "$1/a"; echo 42 > "$1/a/b"'),
    ),
    "a folder in /tmp that a program makes": by_shell(
        "./run /tmp/made/; ./run --to=/tmp/other; grep -qx 42 /tmp/made/a /tmp/other/a",
        planted("run", '#!/bin/sh\nmkdir "${1#--to=}"; echo 42 > "${1#--to=}/a"'),
    ),
    "a program that a program makes in /tmp": by_shell(
        "./run /tmp/made; /tmp/made | grep -qx 42",
        planted("run", "#!/bin/sh\nprintf '#!/bin/sh\\necho 42\\n' > $1; chmod +x $1"),
    ),
    "a program in a folder of mktemp": by_shell(
        'out=$(mktemp -d); cp run $out/; [ "$(echo 21 | $out/run)" = 42 ]; cd $out; echo 21 | ./run > got; grep -qx 42 got',
        DOUBLE,
    ),
    "a build beside the tree": by_shell(
        "mkdir -p /tmp/build; cd /tmp/build; sh /app/configure; /app/run; grep -qx 42 out/result.txt",
        planted("run", "#!/bin/sh\nmkdir -p out; cat conf > out/result.txt") + planted("configure", "echo 42 > conf"),
    ),
    "the tree is copied and run there": by_shell(
        "cp -r /app /tmp/work; cd /tmp/work; ./run; grep -qx 42 result.txt; rm result.txt; ./run; ./run", COPIED
    ),
    "the tree is copied to a folder of mktemp": by_shell(
        "work=$(mktemp -d); cp -a /app/. $work/; cd $work; ./run; grep -qx 42 result.txt", COPIED
    ),
    "a grader's temporary folder": by_shell(
        "python3 /tests/grade.py",
        planted("run", "#!/bin/sh\nread x < data.txt; echo $x > result.txt; echo $x > $1/r"),
        grade__py="import pathlib, subprocess, tempfile\nprint('/logs/verifier')\nwith tempfile.TemporaryDirectory() as d:\n"
        "    pathlib.Path(d, 'data.txt').write_text('42\\n')\n    subprocess.run(['/app/run', d], cwd=d, check=True)\n"
        "    assert pathlib.Path(d, 'result.txt').read_text() == pathlib.Path(d, 'r').read_text() == '42\\n'\n",
    ),
    # Graders
    "a grader on stdin": by_grader("python3 - < /tests/grade.py", grade=GRADE),
    "a grader through a pipe": by_grader("cat /tests/grade.py | python3", grade=GRADE),
    "a grader as an argument": by_grader('python3 -c "$(cat /tests/grade.py)"', grade=GRADE),
    "a grader by -m": by_grader("cd /tests && python3 -m grade", grade=GRADE),
    "a grader in the package of /tests": in_package(
        "cd / && python3 -m tests.grade", "", want="WANT = 42\n", grade="from .want import WANT\n" + GRADE
    ),
    "a grader's package": in_package("PYTHONPATH=/tests python3 -m grading", "grading/"),
    "a grader's folder": in_package("python3 /tests/grading", "grading/"),
    "a grader told by an argument": by_grader(
        "python3 /tests/grade.py --reward /logs/verifier/reward.txt", grade=TOLD.format("sys.argv[2]")
    ),
    "a grader told by a variable": by_grader(
        "export WHERE=/logs/verifier/reward.txt; python3 /tests/grade.py", grade=TOLD.format("os.environ['WHERE']")
    ),
    "a grader told by what it imports": by_grader(
        "python3 /tests/grade.py",
        grade="from lib.where import WHERE\n" + TOLD.format("WHERE"),
        lib__where="WHERE = '/logs/verifier/reward.txt'\n",
    ),
    "commands that the agent has written down too": by_shell(
        'check() { got=$(eval "$1"); [ "$got" = "$2" ]; }\ncheck "python3 solve.py 21" 42\ncheck \'python3 solve.py -- 3\' 6',
        planted("solve.py", "import sys; print(2 * int(sys.argv[-1]))")
        + "printf 'Try:\\n\\n    python3 solve.py 21\\n    python3 solve.py -- 3\\n' > README.md",
    ),
    # Runners of tests
    "tests that are counted first": Grader(
        "export PYTHONPATH=/app\npytest --markers > /dev/null; pytest --fixtures /tests/test_it.py | head -3\n"
        f"[ $(pytest --collect-only -q /tests/test_it.py | grep -c ::) = 2 ] && pytest -q /tests/test_it.py && {OK}",
        RIGHT,
        {"test_it.py": TESTS},
    ),
}
