"""Calls of pytest that run in the process which has imported it: as they would run where they are called."""

import asyncio
import re

import pytest
import pytest_asyncio
from verifier_samples import REWARD, task

from envs.judging.prepare import open_prepared

pytestmark = pytest.mark.docker

PROBE = """
import os, resource, signal, subprocess, sys, time
def is_there():
    with open("/proc/%d/cmdline" % os.getppid()) as file:
        return "runner" in file.read()
def test_probe():
    main = sys.modules["__main__"]
    print("argv", sys.argv, sys.executable, getattr(main, "__file__", None), getattr(main.__spec__, "name", None))
    print("place", os.getcwd(), sys.path, oct(os.umask(0o22)), time.strftime("%Z"))
    print("environ", sorted(one for one in os.environ.items() if one[0] not in ("_", "PYTEST_CURRENT_TEST")))
    print("limits", [resource.getrlimit(one) for one in range(10)], os.getpriority(os.PRIO_PROCESS, 0), os.getuid())
    print("signals", [(n, signal.getsignal(n)) for n in (1, 2, 13, 15, 17)], os.isatty(0), sys.stdout.encoding)
    print("input", open(3).read() if os.environ.get("GIVEN") else None, sys.flags)
    subprocess.run(["sh", "-c", "echo child $PWD; umask; ls /proc/self/fd | wc -l"])
def test_where():
    with open("/tmp/where", "w") as file:
        file.write("runner" if is_there() else "here")
def test_slow():
    if os.environ.get("SLOW"):
        server = subprocess.Popen(["sleep", "98765"])
        open("/tmp/began", "w").close()
        time.sleep(60)
def test_killed():
    if os.environ.get("KILLED"):
        os.kill(os.getpid(), int(os.environ["KILLED"]))
"""
RUN = "-q -s -p no:cacheprovider /tests/test_probe.py"
SLOW = f"rm -f /tmp/began; set -m; SLOW=1 pytest {RUN} -k slow & until [ -e /tmp/began ]; do sleep 0.1; done"
THERE = {
    "module": f"python3 -m pytest {RUN}",
    "program": f"/usr/bin/pytest {RUN}",
    "folder": f"mkdir -p /tmp/'a b'; cd /tmp/'a b'; umask 027; python3 -m pytest {RUN}",
    "environment": f"A='x y' TZ=Asia/Tokyo PYTHONPATH=/opt PATH=/usr/bin pytest {RUN} -k 'not slow'",
    "descriptors": f"echo x > /tmp/given; GIVEN=1 pytest {RUN} 3< /tmp/given > /tmp/out 2>&1; echo $?; cat /tmp/out",
    "pipe": f"echo nothing | python3 -m pytest {RUN} | cat; echo ${{PIPESTATUS[*]}}",
    "failed": f"python3 -m pytest {RUN} --deselect x --maxfail=x; echo $?",
    "none": f"python3 -m pytest {RUN} -k nothing_at_all; echo $?",
    "killed": f"KILLED=9 python3 -m pytest {RUN}; echo $?",
    "aborted": f"KILLED=6 pytest {RUN}; echo $?",
    "ended": f"{SLOW}; kill -TERM -- -$!; wait $!; echo $?; sleep 0.4; pgrep -fc '[s]leep 98765'",
    "interrupted": f"{SLOW}; kill -INT -- -$!; wait $!; echo $?; sleep 0.4; pgrep -fc '[s]leep 98765'",
}
HERE = {
    "flags": f"python3 -B -m pytest {RUN}",
    "limits": f"ulimit -n 512; python3 -m pytest {RUN}",
    "nice": f"nice python3 -m pytest {RUN}",
    "user": f"su -s /bin/bash nobody -c 'pytest {RUN}'",
    "locale": f"LC_ALL=C python3 -m pytest {RUN}",
    "ignored signals": f"trap '' INT; python3 -m pytest {RUN}",
    "shadowed": f"cp /usr/lib/python3.11/textwrap.py .; python3 -m pytest {RUN}; rm textwrap.py",
    "own module": f"cp /usr/lib/python3.11/textwrap.py /opt; PYTHONPATH=/opt pytest {RUN}; rm /opt/textwrap.py",
    "new package": f"mkdir /usr/lib/python3/dist-packages/fresh; python3 -m pytest {RUN}",
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prepared(docker_backend, base_image, tmp_path_factory):
    """A verifier's sandbox with a runner that waits for calls."""
    folder = tmp_path_factory.mktemp("runner")
    one = task(folder, f"python3 -m pytest /tests; {REWARD.format(1)}", {"test_probe.py": PROBE})
    async with open_prepared(docker_backend, one, base_image) as found:
        for _ in range(300):
            if (await found.sandbox.exec("test -S /verifier/runner")).ok:
                break
            await asyncio.sleep(0.1)
        yield found


def comparable(output):
    """Return what was printed, without numbers of processes and times, and the runner's own frames."""
    lines = [line for line in output.splitlines() if not re.search(r'File "(/verifier/runner.py|<string>)"', line)]
    return re.sub(r"0x\w+|\d+\.\d+s\b| +\d+ (?=Killed|Aborted)", "", "\n".join(lines))


async def ran(prepared, line):
    """Return (what a line of test.sh printed and how it ended, where its tests ran)."""
    command = ["bash", "-c", f"rm -f /tmp/where; {line}"]
    done = await prepared.sandbox.exec(command, user="root", cwd="/app", env=prepared.env, timeout=100.0)
    where = await prepared.sandbox.exec("cat /tmp/where", user="root")
    return (comparable(done.output), done.exit_code), where.output


async def test_calls_run_in_the_runner_as_they_do_where_they_are_called(prepared):
    there = {name: await ran(prepared, line) for name, line in THERE.items()}
    await prepared.sandbox.exec("mv /verifier/runner /tmp", user="root")
    here = {name: await ran(prepared, line) for name, line in THERE.items()}
    await prepared.sandbox.exec("mv /tmp/runner /verifier", user="root")
    for name in THERE:
        assert there[name][0] == here[name][0], name
    seen = {name for name, (_, where) in there.items() if where == "runner"}
    assert seen == THERE.keys() - {"failed", "none", "ended", "interrupted"}
    assert {where for name, (_, where) in here.items() if name in seen} == {"here"}


async def test_a_call_that_is_killed_ends_its_tests(prepared):
    (said, _), _ = await ran(prepared, f"{SLOW}; kill -9 $!; sleep 0.4; pgrep -fc '[r]unner.*serve'")
    assert said.splitlines()[-1] == "1"


async def test_pytest_of_the_agents_folder_is_not_imported_before_its_changes(prepared):
    serve = "import verifier_hook as hook; hook.loaded('runner').serve('/usr/lib')"
    ended = await prepared.sandbox.exec(["python3", "-c", serve], user="root", timeout=60.0)
    assert ended.exit_code == 0  # in place of waiting for calls


async def test_calls_that_differ_from_the_runner_run_where_they_are_called(prepared):
    found = {name: await ran(prepared, line) for name, line in HERE.items()}
    assert {name: where for name, (_, where) in found.items()} == dict.fromkeys(HERE, "here")
