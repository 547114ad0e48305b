"""A thief who is root in the agent's container finds no hidden test, reference or later commit there.

Each task's hidden tests and reference carry a mark. The thief looks for it in every file, in all that every git
repository holds, in the environment and in the mounts.
"""

import json
import shutil

import pytest

from envs.judging.specs import agent_spec
from envs.swe import STARTER
from envs.tasks.adapters import r2e, swebench, terminal_bench
from envs.tasks.forge.emit import Bug, ForgedTask, emit
from envs.tasks.forge.mutations import apply_mutations, find_mutations
from envs.tasks.forge.project import read_project
from envs.tasks.harbor import load_task
from sandboxes.base import SandboxSpec
from sandboxes.docker import DockerBackend

pytestmark = pytest.mark.docker

MARK = "PURLOINED-7f3a19"
THIEF = r"""
mark=$1
grep -rlaF --exclude-dir=proc --exclude-dir=sys -e "$mark" / 2>/dev/null
env | grep -qF -e "$mark" && echo environment
for file in /proc/1/cmdline /proc/1/mountinfo; do grep -aqF -e "$mark" $file && echo "$file"; done
find / \( -path /proc -o -path /sys \) -prune -o -name '*.git' -print 2>/dev/null | while read -r at; do
    export GIT_DIR="$at"
    [ -d "$at" ] || GIT_DIR=$(dirname "$at")/$(sed 's/^gitdir: //' "$at")
    git rev-parse --git-dir > /dev/null 2>&1 || continue
    git log --all --reflog -p 2>/dev/null | grep -aqF -e "$mark" && echo "$at: log"
    git stash list -p | grep -aqF -e "$mark" && echo "$at: stash"
    git cat-file --batch-all-objects --batch 2>/dev/null | grep -aqF -e "$mark" && echo "$at: objects"
    [ "$(git rev-list --all --reflog --count)" -le 1 ] || echo "$at: commits"
    [ "$(git for-each-ref | wc -l)" -le 1 ] || echo "$at: refs"
    [ "$(git reflog --all --format=%H | sort -u | wc -l)" -le 1 ] || echo "$at: reflog"
    [ -z "$(git remote)" ] || echo "$at: remote"
    [ -z "$(git fsck --full --no-reflogs --lost-found 2>/dev/null)" ] || echo "$at: lost objects"
done
exit 0
"""

LIBRARY = "def area(width, height):\n    if width <= 0 or height <= 0:\n        return 0\n    return width * height\n"
HIDDEN = f'# {MARK}\nfrom shapes import area\n\n\ndef test_no_area():\n    assert area(0, 5) == 0, "{MARK}"\n'
GIT = "git -c user.name=a -c user.email=a@b.c"
HISTORY = f"""\
RUN git init -q && git add -A && {GIT} commit -q -m start \
    && git checkout -q -b later && echo '{MARK}' > fixed.py && git add -A && {GIT} commit -q -m '{MARK}' && git tag v2 \
    && git checkout -q master && echo '{MARK}' >> shapes.py && {GIT} stash -q \
    && echo '{MARK} lost' > gone && git hash-object -w gone && rm gone \
    && git checkout -q -b gone && {GIT} commit -q --allow-empty -m '{MARK} gone' && git checkout -q master \
    && git branch -q -D gone && git remote add origin https://example.org/{MARK} \
    && git update-ref refs/remotes/origin/main later && git gc -q
"""


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def harbor(root, image):
    shutil.copytree(STARTER / "count-words", root / "count-words")
    for file in ("tests/test.sh", "solution/solve.sh"):
        with (root / "count-words" / file).open("a") as script:
            script.write(f"\n# {MARK}\n")
    return load_task(root / "count-words")


def terminal(root, image):
    files = {
        "task.yaml": "instruction: Correct area.\n",
        "Dockerfile": "FROM atropos-agent/base:debian12\nWORKDIR /app\nCOPY . /app/\n",
        "shapes.py": LIBRARY,
        "run-tests.sh": f"# {MARK}\npytest $TEST_DIR/test_outputs.py\n",
        "tests/test_outputs.py": HIDDEN,
        "solution.sh": f"# {MARK}\n",
    }
    (task,) = terminal_bench.load(write(root / "tb", files), root / "out")
    return task


def row_task(root, name, image, patch, *dialect):
    """The task of a row whose hidden test asks for the area of nothing."""
    added = "\n+".join(HIDDEN.splitlines())
    row = {
        "instance_id": name,
        "image_name" if dialect else "image": image,
        "problem_statement": "area is wrong",
        "patch": patch,
        "test_patch": f"--- /dev/null\n+++ b/tests/test_area.py\n@@ -0,0 +1,6 @@\n+{added}",
        "FAIL_TO_PASS": ["tests/test_area.py::test_no_area"],
    }
    (task,) = swebench.load(write(root, {"rows.jsonl": json.dumps(row)}) / "rows.jsonl", root / "out", *dialect)
    return task


def swe(root, image):
    patch = f"--- a/shapes.py\n+++ b/shapes.py\n@@ -1 +1,2 @@\n+# {MARK}\n def area(width, height):\n"
    return row_task(root, "owner__shapes-1", image, patch)


def smith(root, image):
    """The bug removes the mark, so the image that it is planted in has it, and so has what was built there."""
    patch = f"--- a/fixed.py\n+++ b/fixed.py\n@@ -1 +1 @@\n-mark = '{MARK}'\n+mark = ''\n"
    return row_task(root, "shapes.1.bug", image, patch, "smith")


def r2e_gym(root, image):
    line = {"type": "added", "content": f"# {MARK}"}
    spans = {"old_range": {"start": 0, "length": 0}, "new_range": {"start": 1, "length": 1}}
    hunk = {"descriptor": spans, "line_group": {"all_lines": [line]}}
    names = {"minus_file": {"path": "a/shapes.py"}, "plus_file": {"path": "b/shapes.py"}}
    diff = {"header": {"file": {"path": "shapes.py"}}, **names, "hunks": [hunk]}
    row = {
        "repo_name": "shapes",
        "commit_hash": "2" * 40,
        "docker_image": image,
        "problem_statement": "area is wrong",
        "parsed_commit_content": {"file_diffs": [diff]},
        "execution_result_content": {"test_file_names": ["test_1.py"], "test_file_codes": [HIDDEN]},
        "expected_output_json": {"test_no_area": "PASSED"},
    }
    (task,) = r2e.load(write(root, {"rows.jsonl": json.dumps(row)}) / "rows.jsonl", root / "out")
    return task


def forged(root, image):
    """Hidden is the module of the tests that fail; the original line is the reference."""
    library = write(
        root / "shapes",
        {
            "shapes.py": LIBRARY.replace("width <= 0", f'width <= len("{MARK}") - {len(MARK)}'),
            "tests/test_area.py": HIDDEN,
            "tests/test_more.py": "def test_more():\n    assert True\n",
        },
    )
    text = (library / "shapes.py").read_text()
    mutation = next(one for one in find_mutations(text) if MARK in text[one.start : one.end])
    bug = Bug("shapes.py", text, apply_mutations(text, [mutation]), (mutation,))
    failing, passing = "tests/test_area.py::test_no_area", "tests/test_more.py::test_more"
    files = {failing: "tests/test_area.py", passing: "tests/test_more.py"}
    made = ForgedTask(read_project(library), (bug,), {failing: "assert 5 == 0"}, (passing,), files, 1.0)
    return load_task(emit(made, "area is wrong", root / "out"))


@pytest.fixture
async def published(docker_backend, tmp_path):
    """Images whose repository has the mark everywhere but in the tree that is checked out, and what some have more."""
    files = {"repo/shapes.py": LIBRARY, "repo/tests/test_more.py": "def test_more():\n    assert True\n"}
    dockerfile = "FROM atropos-agent/base:debian12\nWORKDIR /testbed\nCOPY repo/ /testbed/\n" + HISTORY
    more = {
        swe: "",
        smith: f"""\
RUN echo "mark = '{MARK}'" > fixed.py && python3 -m compileall -q . && mkdir -p build/lib .pytest_cache \
    && cp fixed.py build/lib/ && echo {MARK} > .pytest_cache/nodeids
""",
        r2e_gym: f"RUN mkdir /r2e_tests && echo '{MARK}' > /r2e_tests/test_1.py && echo '# {MARK}' > run_tests.sh\n",
    }
    for kind, lines in more.items():
        write(tmp_path / kind.__name__, files | {"Dockerfile": dockerfile + lines})
    return {kind: await docker_backend.ensure_image(None, tmp_path / kind.__name__) for kind in more}


async def steal(sandbox):
    """What the thief finds: files, and `repository: what`."""
    found = await sandbox.exec(["sh", "-c", THIEF, "thief", MARK], user="root", timeout=60)
    assert found.ok, found.output
    return set(found.output.splitlines())


@pytest.mark.parametrize("kind", [harbor, terminal, swe, smith, r2e_gym, forged])
async def test_the_agents_container_holds_nothing_to_find(kind, published, tmp_path):
    task = kind(tmp_path, published.get(kind))
    hidden = [task.hidden.tests, task.hidden.solution]
    assert all(any(MARK in file.read_text() for file in folder.rglob("*") if file.is_file()) for folder in hidden)
    async with DockerBackend() as backend:
        image = await backend.ensure_image(task.image, task.context)
        async with backend.open(agent_spec(task, image)) as sandbox:
            assert await steal(sandbox) == set()


async def test_the_thief_finds_what_is_there_to_find(published):
    async with DockerBackend() as backend, backend.open(SandboxSpec(published[r2e_gym], workdir="/testbed")) as sandbox:
        await sandbox.exec(["sh", "-c", f"mkdir /var/cache/x && printf 'a\\0{MARK}' > '/var/cache/x/with a blank'"])
        found = await steal(sandbox)
    at = "/testbed/.git"
    files = {"/r2e_tests/test_1.py", "/testbed/run_tests.sh", f"{at}/config", "/var/cache/x/with a blank"}
    kinds = {"log", "stash", "objects", "commits", "refs", "reflog", "remote", "lost objects"}
    assert found >= files | {f"{at}: {kind}" for kind in kinds}
