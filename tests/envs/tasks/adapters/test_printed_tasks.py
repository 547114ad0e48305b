"""SWE-bench rows of other languages, judged by what their runners print."""

from dataclasses import replace
from pathlib import Path

import pytest
from clean_tree import CleanTree, a_few_at_a_time
from rows_on_disk import tasks_of
from test_unittests import diff

from envs.checking.check import check_tasks
from envs.judging.verifier import judge
from sandboxes.docker import DockerBackend

# A repository whose runner is a script that prints as go does.
WRONG = "echo 3\n"
RIGHT = "echo 4\n"
CASES = 'check TestZero "$(echo 0)" 0\n'
MORE_CASES = 'check TestSum/two "$(. ./sum.sh)" 4\n'
RUNNER = """\
#!/bin/bash
failed=0
check() {
    if [ "$2" = "$3" ]; then echo "--- PASS: $1 (0.00s)"; else echo "--- FAIL: $1 (0.00s)"; failed=1; fi
}
. ./cases.sh
echo "--- FAIL: TestBroken (0.00s)"
[ $failed = 0 ] && printf 'ok  \\tsum\\t0.1s\\n' || printf 'FAIL\\tsum\\t0.1s\\n'
exit 1
"""
SHELL = {
    "repo": "owner/sum",
    "instance_id": "owner__sum-1",
    "problem_statement": "two and two are four",
    "patch": diff("sum.sh", WRONG, RIGHT),
    "test_patch": diff("cases.sh", CASES, CASES + MORE_CASES),
    "FAIL_TO_PASS": ["TestSum/two"],
    "PASS_TO_PASS": ["TestZero"],
    "rebuild_cmds": ["echo built > built; echo '--- FAIL: TestZero (0.00s)'"],
    "test_cmds": ["test -s built || exit 9", "./run.sh"],
    "log_parser": "parse_log_gotest",
}
PARSER = """\
def parser(log):
    words = {"PASS:": "pass", "FAIL:": "fail"}
    lines = [line.split() for line in log.splitlines() if line.startswith("---")]
    return {line[2]: words[line[1]] for line in lines}
"""
MEANS = {
    "python": "true",
    "no python": "rm -rf /usr/bin/python3* /usr/lib/python3*",
}


async def image_of(backend: DockerBackend, context: Path, files: dict[str, str], build: str) -> str:
    for path, text in files.items():
        file = context / "repo" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    (context / "Dockerfile").write_text(
        f"FROM atropos-agent/base:debian12\nRUN {build}\nWORKDIR /testbed\nCOPY repo/ /testbed/\n"
    )
    return await backend.ensure_image(None, context)


async def shell_image(backend: DockerBackend, tmp_path: Path, means: str) -> str:
    files = {"sum.sh": WRONG, "cases.sh": CASES, "run.sh": RUNNER}
    return await image_of(backend, tmp_path / means, files, MEANS[means])


@pytest.mark.docker
@pytest.mark.parametrize("means", MEANS)
async def test_reference_solves_and_doing_nothing_does_not(docker_backend, tmp_path, means):
    image = await shell_image(docker_backend, tmp_path, means)
    own = {
        "instance_id": "own parser",
        "log_parser": PARSER,
        "print_cmds": ["cat log"],
        "test_cmds": ["./run.sh > log"],
    }
    wrong = [
        {"instance_id": "unknown test", "PASS_TO_PASS": ["TestNone"]},
        {"instance_id": "failing test", "PASS_TO_PASS": ["TestBroken"]},
        {"instance_id": "no such command", "test_cmds": ["go test"]},
        {"instance_id": "takes long", "test_cmds": ["timeout 1 sh -c './run.sh; sleep 9'"]},
        own | {"instance_id": "without python"},
    ]
    rows = [SHELL, SHELL | own] if means == "python" else [SHELL]
    rows += [SHELL | change for change in (wrong[:4] if means == "python" else wrong[4:])]
    tasks = tasks_of(tmp_path, *(row | {"image": image} for row in rows))
    async with DockerBackend() as backend:
        results = await check_tasks(backend, tasks)
    problems = {result.task_id: result.problem for result in results}
    expected = {
        "unknown-test": "(missing): TestNone",
        "failing-test": "(failed): TestBroken",
        "no-such-command": "exit status 127",
        "takes-long": "exit status 124",
        "without-python": "python3",
    }
    for name, problem in problems.items():
        if name in expected:
            assert problem is not None and expected[name] in problem
        else:
            assert problem is None


# What is judged runs in the runner's shell; none of it gives 4.
CHEATS = {
    "prints what is looked for as well": "echo '--- PASS: TestSum/two (0.00s)'",
    "prints it where it is read": "echo '--- PASS: TestSum/two (0.00s)' >&2; echo 3",
    "prints it later": "(sleep 1; echo '--- PASS: TestSum/two (0.00s)' >&2) > /dev/null & echo 3",
    "prints another twice": "echo '--- PASS: TestZero (0.00s)' >&2; echo 4",
    "ends the runner": "echo '--- PASS: TestSum/two (0.00s)' >&2; kill -9 $PPID $$",
    "ends everything": "echo '--- PASS: TestSum/two (0.00s)' >&2; kill -9 -1",
    "ends early": "kill $$; echo 4",
    "keeps the reader waiting": "sleep 1000 > /dev/null & echo 3",
    "writes the reward": "echo 1 > /logs/verifier/reward.txt; echo 3",
    "empties what was printed": ": > /proc/self/fd/2; truncate -s 0 /tmp/tmp.*/output; echo 3",
    "reads the list": "cat /tests/listed >&2; cp /tests/listed /testbed/; echo 3",
}


@pytest.mark.docker
@pytest.mark.parametrize(
    "means, tried",
    [
        pytest.param("python", slice(0, None, 2), id="python"),
        pytest.param("no python", slice(1, None, 2), id="no python"),
        pytest.param("python", slice(None), id="python, all", marks=pytest.mark.slow),
        pytest.param("no python", slice(None), id="setpriv, all", marks=pytest.mark.slow),
    ],
)
async def test_no_cheat_is_rewarded_but_printing_alone(docker_backend, tmp_path, means, tried):
    cheats = dict(list(CHEATS.items())[tried])
    image = await shell_image(docker_backend, tmp_path, means)
    (task,) = tasks_of(tmp_path, SHELL | {"image": image})
    # Some images have programs in root's home.
    dockerfile = tmp_path / "out/owner__sum-1/environment/Dockerfile"
    first, rest = dockerfile.read_text().split("\n", 1)
    dockerfile.write_text(f"{first}\nENV PATH=/root/bin:$PATH\nRUN mkdir -p /root/bin\n{rest}")
    rewards = {}
    async with DockerBackend() as backend:
        image = await backend.ensure_image(task.image, task.context)
        tree = await CleanTree.read(backend, task, image)

        async def verdict(files: dict[str, str]):
            limited = replace(task, hidden=replace(task.hidden, timeout_s=60.0))
            return await judge(backend, limited, image, tree.written(files, mode=0o755))

        async def attempt(name: str, source: str) -> None:
            rewards[name] = (await verdict({"sum.sh": source + "\n"})).reward

        await a_few_at_a_time(attempt(name, source) for name, source in cheats.items())
        rewards["changes the tests"] = (
            await verdict({"cases.sh": "check TestZero 0 0\ncheck TestSum/two 4 4\n"})
        ).reward
        right = await verdict({"sum.sh": RIGHT})
        # What docs/reward.md says: what is printed alone can't be told from a result.
        printing = await verdict({"run.sh": "#!/bin/sh\nprintf -- '--- PASS: %s (0.00s)\\n' TestZero TestSum/two\n"})
    assert rewards == dict.fromkeys([*cheats, "changes the tests"], 0.0)
    assert (right.reward, printing.reward) == (1.0, 1.0)
    assert right.tests == {}, "what is printed names no tests that were observed"


# Real projects, by Debian's own compilers and runners.
REAL = {
    "go": dict(
        packages="golang-go",
        files={
            "go.mod": "module example.org/sum\n\ngo 1.19\n",
            "sum.go": "package sum\n\nfunc Sum(a, b int) int {\n\treturn a - b\n}\n",
            "other/other_test.go": 'package other\n\nimport "testing"\n\nfunc TestZero(t *testing.T) {}\n',
            "sum_test.go": (
                'package sum\n\nimport "testing"\n\nfunc TestZero(t *testing.T) {\n'
                '\tif Sum(0, 0) != 0 {\n\t\tt.Fatal("not 0")\n\t}\n}\n'
            ),
        },
        bug=("sum.go", "a - b", "a + b"),
        tests=(
            "sum_test.go",
            '\nfunc TestSum(t *testing.T) {\n\tt.Run("two", func(t *testing.T) {\n'
            '\t\tif Sum(2, 2) != 4 {\n\t\t\tt.Fatal("not 4")\n\t\t}\n\t})\n}\n',
        ),
        row={
            "test_cmds": "go test -v ./...",
            "log_parser": "parse_log_gotest",
            "FAIL_TO_PASS": ["TestSum", "TestSum/two"],
            "PASS_TO_PASS": ["TestZero"],
        },
    ),
    "node": dict(
        packages="nodejs",
        files={
            "package.json": '{"type": "module"}\n',
            "sum.js": "export const sum = (a, b) => a - b;\n",
            "test/sum.test.js": (
                "import test from 'node:test';\nimport assert from 'node:assert';\nimport { sum } from '../sum.js';\n\n"
                "test('adds nothing', () => assert.equal(sum(0, 0), 0));\n"
            ),
        },
        bug=("sum.js", "a - b", "a + b"),
        tests=("test/sum.test.js", "\ntest('adds two', () => assert.equal(sum(2, 2), 4));\n"),
        row={
            "test_cmds": ["node --test test/"],
            "log_parser": "parse_log_tap",
            "FAIL_TO_PASS": ["- adds two"],
            "PASS_TO_PASS": ["- adds nothing"],
        },
    ),
    "cargo": dict(
        packages="cargo",
        files={
            "Cargo.toml": '[package]\nname = "sum"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/lib.rs": "pub fn sum(a: i64, b: i64) -> i64 {\n    a - b\n}\n",
            "tests/sums.rs": "use sum::sum;\n\n#[test]\nfn zero() {\n    assert_eq!(sum(0, 0), 0);\n}\n",
        },
        bug=("src/lib.rs", "a - b", "a + b"),
        tests=(
            "tests/sums.rs",
            "\nmod more {\n    #[test]\n    fn two() {\n        assert_eq!(sum::sum(2, 2), 4);\n    }\n}\n",
        ),
        row={
            "test_cmds": ["cargo test --no-fail-fast"],
            "log_parser": "parse_log_cargo",
            "FAIL_TO_PASS": ["more::two"],
            "PASS_TO_PASS": ["zero"],
        },
    ),
}


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("python", [True, False], ids=["python", "no python"])
@pytest.mark.parametrize("name", REAL)
async def test_real_projects(docker_backend, tmp_path, name, python):
    case = REAL[name]
    build = f"apt-get update && apt-get install -y --no-install-recommends {case['packages']}"
    build += "" if python else f" && {MEANS['no python']}"
    image = await image_of(docker_backend, tmp_path / "context", case["files"], build)
    file, wrong, right = case["bug"]
    source, tests = case["files"][file], case["files"][case["tests"][0]]
    row = {
        "image": image,
        "patch": diff(file, source, source.replace(wrong, right)),
        "test_patch": diff(case["tests"][0], tests, tests + case["tests"][1]),
        "rebuild_cmds": None,
    }
    async with DockerBackend() as backend:
        (result,) = await check_tasks(backend, tasks_of(tmp_path, SHELL | row | case["row"]))
    assert result.problem is None
