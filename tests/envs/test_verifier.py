"""Judging: what becomes of the agent's work, of what test.sh does, and of sandboxes that fail."""

import asyncio
import re
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from envs.judging.changes import Changes, collect_changes
from envs.judging.specs import agent_spec, verifier_spec
from envs.judging.start_trees import StartTrees
from envs.judging.verifier import judge, open_verifier
from envs.types import Hidden, InfraError, Task, TestStatus
from sandboxes.base import EngineUnavailable, ExecResult, SandboxDied, SandboxError
from sandboxes.local.backend import LocalBackend

REWARD = "mkdir -p /logs/verifier; echo {} > /logs/verifier/reward.txt"


def task(tmp_path: Path, script: str, *, timeout_s: float = 30.0, workdir: str = "/app", **hidden) -> Task:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test.sh").write_text(script)
    return Task("sample", "Do it.", Hidden(tests, timeout_s=timeout_s, **hidden), workdir=workdir)


async def verdict_after(backend, image, task, command):
    """Run a command as an agent would, and judge what it made."""
    start = await StartTrees(backend).get(task, image)
    async with open_verifier(backend, task, image) as verifier:
        async with backend.open(agent_spec(task, image)) as sandbox:
            await sandbox.exec(command)
            changes = await collect_changes(sandbox, start)
        return await verifier(changes)


# On a real engine


@pytest.mark.docker
async def test_what_the_agent_made_is_judged_in_another_sandbox(docker_backend, base_image, tmp_path):
    work = "test -e /tmp/mark || test ! -e old && cat a/new && test -x run && readlink l"
    sample = task(tmp_path, f"{work} && {REWARD.format(1)}")
    command = "touch /tmp/mark; mkdir a; echo hi > a/new; echo x > run; chmod +x run; ln -s run l; printf '\\377' > bin"
    verdict = await verdict_after(docker_backend, base_image, sample, command)
    assert verdict.solved
    assert verdict.explanation.startswith("Reward 1; 0 of 0 tests passed.\nhi\nrun\n")


@pytest.mark.docker
async def test_changes_deletions_and_new_kinds_are_applied(docker_backend, tmp_path):
    (tmp_path / "image/files/deep").mkdir(parents=True)
    (tmp_path / "image/files/deep/gone").write_text("1")
    (tmp_path / "image/files/file").write_text("1")
    (tmp_path / "image/files/frozen").write_text("1")
    (tmp_path / "image/files/-n name").write_text("1")
    (tmp_path / "image/Dockerfile").write_text(
        "FROM atropos-agent/base:debian12\nWORKDIR /src\nCOPY files/ /src/\nRUN chmod 400 frozen && ln -s /etc out\n"
    )
    image = await docker_backend.ensure_image(None, tmp_path / "image")
    sample = task(tmp_path, "find . -printf '%p %y %m\\n' | sort; cat frozen file/x out/y", workdir=None)
    remove = "rm -r deep './-n name' out file frozen; mkdir file out"
    command = remove + "; echo 2 > file/x; echo 3 > out/y; echo 4 > frozen"
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.explanation.split("\n", 1)[1] == (
        ". d 755\n./file d 755\n./file/x f 644\n./frozen f 644\n./out d 755\n./out/y f 644\n4\n2\n3\n"
    )


@pytest.mark.docker
async def test_nothing_but_the_working_directory_is_carried(docker_backend, base_image, tmp_path):
    script = f"test -e /usr/bin/planted -o -e /tests/planted -o -e .git && {REWARD.format(0)} || {REWARD.format(1)}"
    plant = "mkdir -p /logs/verifier /tests .git; touch /tests/planted .git/x /usr/bin/planted"
    command = plant + "; echo 5 > /logs/verifier/reward.txt"
    verdict = await verdict_after(docker_backend, base_image, task(tmp_path, script), command)
    assert verdict.reward == 1.0


@pytest.mark.docker
async def test_a_working_directory_that_became_a_link_brings_nothing(docker_backend, base_image, tmp_path):
    sample = task(tmp_path, f'test -z "$(ls -A)" && {REWARD.format(0)}')
    verdict = await verdict_after(docker_backend, base_image, sample, "cd /; rmdir /app; ln -s /etc /app")
    assert verdict.reward == 0.0


@pytest.mark.docker
async def test_a_working_directory_that_is_gone_is_no_reward(docker_backend, base_image, tmp_path):
    verdict = await verdict_after(docker_backend, base_image, task(tmp_path, REWARD.format(1)), "cd /; rmdir /app")
    assert (verdict.reward, "is gone" in verdict.explanation) == (0.0, True)


@pytest.mark.docker
async def test_a_tree_that_is_too_big_is_no_reward(docker_backend, base_image, tmp_path, monkeypatch):
    monkeypatch.setattr("envs.judging.changes.MAX_TREE_BYTES", 1 << 20)
    sample = task(tmp_path, REWARD.format(1))
    verdict = await verdict_after(docker_backend, base_image, sample, "head -c 3000000 /dev/zero > big")
    assert (verdict.reward, "larger than 1 MiB" in verdict.explanation) == (0.0, True)


@pytest.mark.docker
@pytest.mark.parametrize(
    "script, reward, said",
    [
        ("true", 0.0, "the verifier wrote no reward (test.sh ended with 0)"),
        ("echo boom; exit 3", 0.0, "the verifier wrote no reward (test.sh ended with 3).\nboom"),
        (REWARD.format("nan"), 0.0, "reward.txt holds 'nan', not a finite number"),
        (REWARD.format("1 2"), 0.0, "reward.txt holds '1 2', not a number"),
        (REWARD.format("''"), 0.0, "reward.txt holds '', not a number"),
        (REWARD.format("0.25"), 0.25, "Reward 0.25"),
        (REWARD.format("0") + '; echo \'{"reward": 1, "speed": 3}\' > /logs/verifier/reward.json', 1.0, "Reward 1"),
        ('echo \'{"a": 1, "b": 0}\' > /logs/verifier/reward.json', 0.5, "Reward 0.5"),
        ("echo 0.75 > /logs/verifier/reward.json", 0.75, "Reward 0.75"),
        ("echo '[1]' > /logs/verifier/reward.json", 0.0, "reward.json holds [1], not finite numbers"),
        ("echo '{\"a\": NaN}' > /logs/verifier/reward.json", 0.0, "not finite numbers"),
        ("echo '{' > /logs/verifier/reward.json", 0.0, "reward.json is not JSON"),
        ("ln -s /tests/one /logs/verifier/reward.txt", 0.0, "the verifier wrote no reward"),
        ("rm -r /logs", 0.0, "the verifier's logs could not be read"),
    ],
)
async def test_what_test_sh_leaves_decides(docker_backend, base_image, tmp_path, script, reward, said):
    verdict = await judge(docker_backend, task(tmp_path, script), base_image, Changes())
    assert verdict.reward == reward
    assert said in verdict.explanation


@pytest.mark.docker
async def test_tests_that_hang_are_no_reward(docker_backend, base_image, tmp_path):
    sample = task(tmp_path, REWARD.format(1) + "; echo waiting; sleep 100", timeout_s=1.0)
    verdict = await judge(docker_backend, sample, base_image, Changes())
    assert verdict.reward == 0.0
    assert verdict.explanation.startswith("The tests did not end within 1 s.\nwaiting")
    assert verdict.metrics["verifier_timed_out"] == 1.0


@pytest.mark.docker
async def test_a_process_that_is_left_behind_cannot_change_the_reward(docker_backend, base_image, tmp_path):
    late = "(sleep 0.5; echo 1 > /logs/verifier/reward.txt) > /dev/null 2>&1 &\n"
    verdict = await judge(docker_backend, task(tmp_path, late + REWARD.format(0)), base_image, Changes())
    assert verdict.reward == 0.0


@pytest.mark.docker
async def test_test_sh_may_run_code_as_nobody_who_cannot_write_the_reward(docker_backend, base_image, tmp_path):
    script = (
        "setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs sh -c '"
        "id -u; echo 9 > /logs/verifier/reward.txt; echo x > /tests/test.sh; kill -9 $PPID'\n" + REWARD.format(0.5)
    )
    verdict = await judge(docker_backend, task(tmp_path, script), base_image, Changes())
    assert verdict.reward == 0.5
    assert "65534" in verdict.explanation


@pytest.mark.docker
@pytest.mark.parametrize("python", [True, False], ids=["python", "no python"])
@pytest.mark.parametrize(
    "move", ["", "mv /opt/lang/bin /opt/lang/old && mkdir /opt/lang/bin && "], ids=["into", "anew"]
)
async def test_what_is_judged_cannot_put_programs_in_roots_path(docker_backend, tmp_path, move, python):
    # As in images of Go and Rust, where anyone may write to the folder of their programs.
    remove = "" if python else " && rm -rf /usr/bin/python3* /usr/lib/python3*"
    (tmp_path / "image").mkdir()
    (tmp_path / "image/Dockerfile").write_text(
        "FROM atropos-agent/base:debian12\nENV PATH=/opt/lang/bin:$PATH\nWORKDIR /app\n"
        f"RUN mkdir -p /opt/lang/bin && chmod -R 777 /opt/lang{remove}\n"
    )
    image = await docker_backend.ensure_image(None, tmp_path / "image")
    sample = task(tmp_path, f"judged sh ./run; {REWARD.format(0)}; judged true; cat /dev/null")
    plant = '#!/bin/sh\necho 1 > /logs/verifier/reward.txt\nexec /usr/bin/${0##*/} "$@"\n'
    names = "mkdir cat tar env readlink find"
    run = (
        f"{move}for name in {names}; do printf '%s' '{plant}' > /opt/lang/bin/$name; chmod +x /opt/lang/bin/$name; done"
    )
    command = f"cat > run <<'E'\n{run}\nE\n"
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.reward == 0.0


WAYS = r"""
./p; timeout 5 ./p; env ./p; env -i ./p; sh -c ./p; bash -c ./p; env -i sh -c ./p; nice ./p; nohup ./p; eval ./p
echo | xargs ./p; find . -name p -exec {} ';'; find . -name p -execdir {} ';'; . ./p; source ./p; (PATH=.:$PATH; p)
cp p /tmp/q; /tmp/q; timeout 5 /tmp/q; cat p > /tmp/r; chmod +x /tmp/r; env /tmp/r; /bin/sh ./p; timeout 5 sh ./p
/bin/sh -c 'timeout 5 env FOO=1 ./p'; x=$(./p); awk 'BEGIN { system("./p") }'; coproc ./p; wait; ./p & wait
command ./p; tool; timeout 5 tool; cat /dev/null; tar --version; bash -e ./p; sh -eu ./p; env bash -o pipefail ./p
"""


def image_of(tmp_path, python, *lines):
    """The folder of an image, with or without Python."""
    (tmp_path / "image").mkdir()
    remove = [] if python else ["RUN rm -rf /usr/bin/python3* /usr/lib/python3*"]
    text = "\n".join(["FROM atropos-agent/base:debian12", "WORKDIR /app", *lines, *remove])
    (tmp_path / "image/Dockerfile").write_text(text + "\n")
    return tmp_path / "image"


@pytest.mark.docker
@pytest.mark.parametrize("python", [True, False], ids=["python", "no python"])
async def test_in_whatever_way_test_sh_runs_judged_code_it_is_not_root(docker_backend, tmp_path, python):
    folder = image_of(tmp_path, python, "ENV PATH=/app/bin:$PATH")
    image = await docker_backend.ensure_image(None, folder)
    said = "sort /tmp/said | uniq -c | sed 's/^ */said /'"
    sample = task(tmp_path, f": > /tmp/said; chmod 666 /tmp/said\n{WAYS}\n{said}\nexec ./p")
    program = "#!/bin/sh\n/usr/bin/id -u >> /tmp/said\necho 1 > /logs/verifier/reward.txt\n"
    planted = "; ".join(f"cp p bin/{name}" for name in ("tool", "cat", "tar", "env", "timeout", "sh", "test", "mkdir"))
    command = f"printf '%s' '{program}' > p; chmod +x p; mkdir -m 777 bin; {planted}; chmod 777 ."
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.reward == 0.0
    ran = re.findall("^said (.*)", verdict.explanation, re.MULTILINE)
    assert ran == ["30 65534"], "each of the ways, but for those by which the shell itself would run it"


@pytest.mark.docker
async def test_a_grader_is_not_run_by_a_python_of_the_working_directory(docker_backend, tmp_path):
    folder = image_of(tmp_path, True, "RUN python3 -m venv --without-pip .venv")
    image = await docker_backend.ensure_image(None, folder)
    sample = task(tmp_path, "source .venv/bin/activate; python /tests/grade.py; .venv/bin/python /tests/grade.py")
    (tmp_path / "tests/grade.py").write_text("import sys; print(sys.prefix)  # /logs/verifier\n")
    plant = "import os; os.system('echo 1 > /logs/verifier/reward.txt')"
    command = f'echo "{plant}" > $(echo .venv/lib/*/site-packages)/x.pth'
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert (verdict.reward, verdict.explanation.split("\n")[1:]) == (0.0, ["/usr", "/usr", ""])


@pytest.mark.docker
@pytest.mark.parametrize("python", [True, False], ids=["python", "no python"])
async def test_what_test_sh_may_run_runs_as_ever(docker_backend, tmp_path, python):
    folder = image_of(tmp_path, python, "RUN mkdir -p .venv/bin && echo exit 9 > .venv/bin/activate")
    image = await docker_backend.ensure_image(None, folder)
    script = f"""set -e
    source .venv/bin/activate && test "$VIRTUAL_ENV" = .venv
    printf 'A=5\\n' > /tmp/settings && . /tmp/settings && test $A = 5
    test "$(timeout 5 id -u)-$(env B=1 nice id -u)-$(echo id -u | xargs env)" = 0-0-0
    ended=0; timeout 0.5 ./loop > /tmp/said || ended=$?; test $ended = 124
    test "$(cat /tmp/said)" = begun
    timeout 5 sh -eu /tests/helper && timeout -k 1 5 sh -c 'test $(id -u) = 0'
    timeout 5 cat /tests/helper ./loop > /dev/null
    chmod +x /tests/helper && timeout 5 /tests/helper && test "$(./whoami)" = 65534
    {REWARD.format(1)}"""
    sample = task(tmp_path, script)
    (tmp_path / "tests/helper").write_text("#!/bin/sh\ntest $(id -u) = 0\n")
    command = (
        "printf '#!/bin/sh\\necho begun\\nwhile :; do sleep 0.1; done\\n' > loop; "
        "printf '#!/bin/sh\\nid -u\\n' > whoami; chmod +x loop whoami"
    )
    verdict = await verdict_after(docker_backend, image, sample, command)
    assert verdict.solved, verdict.explanation


@pytest.mark.docker
async def test_the_agent_cannot_become_another_user(docker_backend, base_image, tmp_path):
    async with docker_backend.open(agent_spec(task(tmp_path, ""), base_image)) as sandbox:
        tried = await sandbox.exec("setpriv --reuid=65534 --clear-groups true")
    assert not tried.ok


@pytest.mark.docker
async def test_an_image_may_have_a_user_of_its_own(docker_backend, tmp_path):
    (tmp_path / "image").mkdir()
    (tmp_path / "image/Dockerfile").write_text(
        "FROM atropos-agent/base:debian12\nWORKDIR /src\nRUN echo 1 > old && chown -R 1234 /src\nUSER 1234\n"
    )
    image = await docker_backend.ensure_image(None, tmp_path / "image")
    sample = task(tmp_path, "id -u; judged id -u; ls; " + REWARD.format(1), workdir=None)
    verdict = await verdict_after(docker_backend, image, sample, "id -u > new; rm old")
    assert (verdict.reward, verdict.explanation.split("\n", 1)[1]) == (1.0, "0\n1234\nnew\n")


@pytest.mark.docker
async def test_the_tests_get_their_environment_and_user(docker_backend, base_image, tmp_path):
    sample = task(tmp_path, "id -u; pwd; echo $WHO; " + REWARD.format(1), user="65534", test_env={"WHO": "verifier"})
    verdict = await judge(docker_backend, sample, base_image, Changes())
    assert verdict.explanation.endswith("65534\n/app\nverifier\n")
    assert verdict.solved


@pytest.mark.docker
@pytest.mark.parametrize(
    "script",
    [
        """echo '{"results": {"tests": [{"name": "a", "status": "passed"}, {"name": "b", "status": "failed"},
        {"name": "c", "status": "skipped"}]}}' > /logs/verifier/ctrf.json""",
        """echo '<testsuite><testcase classname="" name="a"/><testcase classname="" name="b"><failure/></testcase>
        <testcase classname="" name="c"><skipped/></testcase></testsuite>' > /logs/verifier/junit.xml""",
        "echo 'PASSED a'; echo 'FAILED b - assert'; echo 'SKIPPED c'",
    ],
    ids=["ctrf", "junit", "pytest"],
)
async def test_reports_fill_the_status_of_each_test(docker_backend, base_image, tmp_path, script):
    verdict = await judge(docker_backend, task(tmp_path, script + "; " + REWARD.format(0)), base_image, Changes())
    found = {name.removeprefix("::"): status for name, status in verdict.tests.items()}
    assert found == {"a": TestStatus.PASSED, "b": TestStatus.FAILED, "c": TestStatus.MISSING}
    assert "1 of 3 tests passed; not passed:" in verdict.explanation


@pytest.mark.docker
async def test_a_report_that_cannot_be_read_changes_no_reward(docker_backend, base_image, tmp_path):
    script = "echo '{' > /logs/verifier/ctrf.json; " + REWARD.format(1)
    verdict = await judge(docker_backend, task(tmp_path, script), base_image, Changes())
    assert (verdict.reward, verdict.tests) == (1.0, {})


@pytest.mark.docker
async def test_a_missing_image_is_ours_not_the_models(docker_backend, tmp_path):
    with pytest.raises(InfraError) as caught:
        await judge(docker_backend, task(tmp_path, ""), "atropos-agent/no-such-image", Changes())
    assert caught.value.kind == "verifier"


@pytest.mark.docker
async def test_the_root_directory_is_no_source_tree(docker_backend, base_image, tmp_path):
    with pytest.raises(InfraError, match="name the source tree"):
        await StartTrees(docker_backend).get(task(tmp_path, "", workdir="/"), base_image)


# On sandboxes that fail


class FailingSandbox:
    """Answers every command with success until `fails` says that one dies."""

    id = "failing"
    workdir = "/app"

    def __init__(self, fails):
        self._fails = fails
        self.commands = []

    async def exec(self, command, **options):
        self.commands.append(command)
        if self._fails(command):
            raise SandboxDied("killed")
        return ExecResult(0, b"")

    async def upload(self, archive, path):
        pass

    async def stop(self):
        pass

    async def download(self, path, *, max_bytes=0):
        raise FileNotFoundError(path)


class FailingBackend:
    """Opens the given sandboxes one after the other; an exception in their place is raised."""

    def __init__(self, *sandboxes):
        self._sandboxes = list(sandboxes)
        self.opened = 0

    @asynccontextmanager
    async def open(self, spec):
        self.opened += 1
        sandbox = self._sandboxes.pop(0)
        if isinstance(sandbox, Exception):
            raise sandbox
        yield sandbox


def dies_in_tests():
    return FailingSandbox(lambda command: "/verifier/run.sh" in command)


def dies_before_the_tests():
    return FailingSandbox(lambda command: "mkdir" in command)


def survives():
    return FailingSandbox(lambda command: False)


async def test_a_sandbox_that_dies_in_the_tests_twice_is_the_codes_doing(tmp_path):
    verdict = await judge(FailingBackend(dies_in_tests(), dies_in_tests()), task(tmp_path, ""), "image", Changes())
    assert (verdict.reward, "brought down their sandbox, twice" in verdict.explanation) == (0.0, True)


async def test_a_task_without_tests_is_refused(tmp_path):
    sample = Task("sample", "Do it.", Hidden())
    with pytest.raises(InfraError, match="has no tests"):
        await judge(FailingBackend(survives(), survives()), sample, "image", Changes())


async def test_a_sandbox_that_dies_in_the_tests_once_is_judged_again(tmp_path):
    backend = FailingBackend(dies_in_tests(), survives())
    assert "logs could not be read" in (await judge(backend, task(tmp_path, ""), "image", Changes())).explanation
    assert backend.opened == 2


@pytest.mark.parametrize(
    "sandboxes",
    [
        (dies_before_the_tests(), dies_before_the_tests()),
        (dies_before_the_tests(), dies_in_tests()),
        (dies_in_tests(), EngineUnavailable("no engine")),
        (SandboxError("no room"), SandboxError("no room")),
    ],
    ids=["before", "before-then-in", "engine", "open"],
)
async def test_what_the_code_cannot_cause_is_ours(tmp_path, sandboxes):
    with pytest.raises(InfraError) as caught:
        await judge(FailingBackend(*sandboxes), task(tmp_path, ""), "image", Changes())
    assert caught.value.kind == "verifier"


async def test_a_fault_in_opening_is_raised_not_waited_for(tmp_path):
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(judge(FailingBackend(ZeroDivisionError()), task(tmp_path, ""), "x", Changes()), 5)


async def test_an_agent_that_fails_leaves_no_verifier_behind(tmp_path):
    closed = []

    class Backend:
        @asynccontextmanager
        async def open(self, spec):
            try:
                await asyncio.sleep(60 if spec.image == "slow" else 0)
                yield survives()
            finally:
                closed.append(spec.image)

    sample = task(tmp_path, "")
    for image in ("slow", "fast"):
        with pytest.raises(KeyError):
            async with open_verifier(Backend(), sample, image):
                await asyncio.sleep(0.01)
                raise KeyError
    assert closed == ["slow", "fast"]


async def test_a_problem_needs_no_sandbox(tmp_path):
    changes = Changes(problem="it is too big")
    verdict = await judge(FailingBackend(survives()), task(tmp_path, ""), "image", changes)
    assert verdict.explanation == "Nothing could be judged: it is too big."


async def test_start_trees_are_read_once_and_again_after_a_failure(tmp_path):
    class Backend:
        def __init__(self):
            self.opened = 0

        def open(self, spec):
            self.opened += 1
            if self.opened == 1:
                return FailingBackend(SandboxError("busy")).open(spec)
            return local.open(spec)

    async with LocalBackend() as local:
        backend = Backend()
        trees, sample = StartTrees(backend), task(tmp_path, "")
        with pytest.raises(InfraError):
            await trees.get(sample, "image")
        assert await asyncio.gather(*(trees.get(sample, "image") for _ in range(5))) == [{}] * 5
        assert backend.opened == 2


def test_the_verifier_has_a_network_and_rights_of_its_own(tmp_path):
    sample = task(tmp_path, "", network=True)
    assert verifier_spec(sample, "i").limits.network
    assert not agent_spec(sample, "i").limits.network
    assert verifier_spec(sample, "i").switch_users
    assert not agent_spec(sample, "i").switch_users


async def test_what_an_agent_made_on_the_local_backend_is_collected(tmp_path):
    sample = task(tmp_path, "")
    async with LocalBackend() as backend, backend.open(agent_spec(sample, "image")) as sandbox:
        await sandbox.exec("echo 1 > a; mkdir b; mkfifo pipe; ln -s /etc/passwd out")
        changes = await collect_changes(sandbox, {})
    assert changes.added == ("a", "b")
    assert "out" in changes.dropped
