"""Patches of rows: what is mended, what is refused, and that git applies what is left."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows_on_disk import write

from envs.tasks.adapters import swebench
from envs.tasks.adapters.directory import make_task_toml, write_task
from envs.tasks.adapters.patches import read_patch
from envs.types import BadTask, BadTasks

OLD = "one\ntwo\n\nthree\nfour\n\n\n\n"
NEW = "one\n2\n\nthree\n4\n\n\n\n"
GOOD = """\
diff --git a/src/x.py b/src/x.py
--- a/src/x.py
+++ b/src/x.py
@@ -1,8 +1,8 @@ def f():
 one
-two
+2
 
 three
-four
+4
 
 
 
"""


def applied(tmp_path, patch: str, old: str = OLD) -> str:
    """Return the file after git has applied the patch."""
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True, exist_ok=True)
    (tree / "src/x.py").write_bytes(old.encode())
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tree, input=patch.encode(), check=True)
    return (tree / "src/x.py").read_bytes().decode()


def test_a_patch_that_is_well_stays_as_it_is(tmp_path):
    found = read_patch(GOOD, "here")
    assert (found.text, found.paths) == (GOOD, ["src/x.py"])
    assert applied(tmp_path, found.text) == NEW


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(GOOD.rstrip("\n"), id="last line end"),
        pytest.param(GOOD.strip(), id="blank context at the end"),
        pytest.param(GOOD.strip() + "\n", id="blank context at the end, ended"),
        pytest.param(GOOD.replace("\n \n", "\n\n"), id="blanks of empty context"),
        pytest.param(GOOD.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(GOOD.replace("\n", "\r\n").strip(), id="CRLF and stripped"),
        pytest.param(GOOD.replace("-1,8 +1,8", "-1,4 +1,4"), id="counts too small"),
        pytest.param(GOOD.replace("-1,8 +1,8", "-1,8 +1,7"), id="counts that differ"),
        pytest.param(GOOD.replace("-1,8 +1,8", "-1 +1"), id="counts left out"),
        pytest.param(GOOD.partition("\n")[2], id="no git header"),
        pytest.param(GOOD.replace("a/src", "src").replace("b/src", "src"), id="no prefixes"),
        pytest.param("--- src/x.py\t(revision 1)\n+++ src/x.py\t(working copy)\n" + GOOD[GOOD.index("@@") :], id="svn"),
        pytest.param("\ufeff" + GOOD, id="byte order mark"),
        pytest.param(GOOD.replace("b/src/x.py\n@@", "src/x.py\n@@"), id="one prefix"),
        pytest.param(GOOD.replace("--- a/src", "--- src"), id="the other prefix"),
        pytest.param("--- ./src/x.py\n+++ ./src/x.py\n" + GOOD[GOOD.index("@@") :], id="dot and slash"),
        pytest.param("--- src/x.py.orig\t2020-01-01\n+++ src/x.py\n" + GOOD[GOOD.index("@@") :], id="backup"),
        pytest.param("--- a/src/x.py~\n+++ b/src/x.py\n" + GOOD[GOOD.index("@@") :], id="backup with prefixes"),
        pytest.param("--- one-1.0/src/x.py\n+++ one-1.1/src/x.py\n" + GOOD[GOOD.index("@@") :], id="two folders"),
        pytest.param(
            "--- src/x.py (revision 1)\n+++ src/x.py (working copy)\n" + GOOD[GOOD.index("@@") :], id="spaces"
        ),
        pytest.param(GOOD.replace("src/x.py\n", "src/x.py  \n"), id="blanks after names"),
        pytest.param("Here it is:\n```diff\n" + GOOD + "```\n- done\n", id="fences"),
        pytest.param("From abc\nSubject: x\n---\n 1 file\n\n" + GOOD + "-- \n2.39.5\n\n", id="mail"),
    ],
)
def test_what_is_wrong_in_form_alone_is_mended(tmp_path, broken):
    found = read_patch(broken, "here")
    assert found.paths == ["src/x.py"]
    assert applied(tmp_path, found.text) == NEW
    assert read_patch(found.text, "here") == found


def test_counts_are_mended_in_each_hunk_and_a_mails_signature_is_no_deleted_line(tmp_path):
    hunks = "@@ -1,9 +1,2 @@\n one\n-two\n+2\n \n@@ -4,1 +4,1 @@\n three\n-four\n+4\n \n-- \n2.39.5\n"
    found = read_patch("--- a/src/x.py\n+++ b/src/x.py\n" + hunks, "here")
    assert "@@ -1,3 +1,3 @@" in found.text
    assert "@@ -4,3 +4,3 @@" in found.text
    assert applied(tmp_path, found.text) == NEW


def test_line_ends_of_a_file_that_has_them_stay(tmp_path):
    head, body = GOOD[: GOOD.index(" one")], GOOD[GOOD.index(" one") :]
    found = read_patch(head + body.replace("\n", "\r\n"), "here")
    assert applied(tmp_path, found.text, OLD.replace("\n", "\r\n")) == NEW.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("nonsense", "No valid patches"),
        ("*** a/x\n--- b/x\n***************\n*** 1 ****\n! b\n--- 1 ----\n! c\n", "No valid patches"),
        (GOOD.replace("\n", "\\n"), "No valid patches"),
        (GOOD[: GOOD.index("-four")], "cut off"),
        (GOOD[: GOOD.index("-four")].replace("\n", "\r\n"), "cut off"),
        (GOOD + "\n+lost\n", "belong to no hunk"),
        (GOOD + "@@ ... @@\n-d\n+e\n", "belong to no hunk"),
        (GOOD[: GOOD.index(" one")] + "one\ntwo\n", "cut off"),
        ("diff --git a/x b/x\n" + GOOD[GOOD.index("@@") :], "fragment without header"),
        ("diff --git a/x b/x\nindex 1..2 100644\nBinary files a/x and b/x differ\n", "content of a binary file"),
        (GOOD.replace("b/src/x.py\n@@", "b/src/y.py\n@@"), "one file is named"),
        ("diff --git a/sub b/sub\nindex 11..22 160000\n--- a/sub\n+++ b/sub\n@@ -1 +1 @@\n-11\n+22\n", "submodule"),
        (GOOD.replace("src/x.py", "../x.py"), "leads out"),
        (GOOD.replace("src/x.py", ".git/config"), "leads out"),
        (GOOD + "\ud800", "surrogates not allowed"),
    ],
)
def test_what_can_not_be_mended_is_refused(broken, why):
    with pytest.raises(BadTask, match=rf"^rows:3: patch: git can't read this patch: (.|\n)*{why}"):
        read_patch(broken, "rows:3: patch")


def test_a_renamed_file_is_named_before_and_after():
    moved = "diff --git a/old x.py b/new.py\nsimilarity index 100%\nrename from old x.py\nrename to new.py\n"
    assert read_patch(moved, "here").paths == ["new.py", "old x.py"]


def test_a_binary_file_whose_last_line_end_is_lost_is_read(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    git = ["git", "-C", str(tree), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tree / "b").write_bytes(bytes(range(256)))
    subprocess.run([*git, "add", "."], check=True)
    patch = subprocess.run([*git, "diff", "--cached", "--binary"], check=True, capture_output=True).stdout.decode()
    assert read_patch(patch.strip(), "here").paths == ["b"]


@given(st.text(alphabet=" +-\\@a/\n\r", max_size=80), st.integers(0, len(GOOD)))
def test_whatever_is_let_through_git_can_read_and_stays_as_it_is(noise, at):
    try:
        found = read_patch(GOOD[:at] + noise + GOOD[at:], "here")
    except BadTask:
        return
    assert read_patch(found.text, "here") == found


def test_no_adapter_writes_a_patch_that_git_can_not_read(tmp_path):
    files = {
        "task.toml": make_task_toml("x"),
        "instruction.md": "Do it.",
        "environment/Dockerfile": "FROM x\nWORKDIR /x\n",
    }
    tests = {"tests/test.sh": "true"}
    write_task(tmp_path, "good", {**files, **tests, "environment/bug.patch": GOOD.strip()})
    assert (tmp_path / "good/environment/bug.patch").read_text() == GOOD
    with pytest.raises(BadTask, match=r"bad: tests/test\.patch: git can't read this patch"):
        write_task(tmp_path, "bad", {**files, **tests, "tests/test.patch": "nonsense"})
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize("family", ["swebench", "swegym", "live", "smith"])
@pytest.mark.parametrize("field", ["patch", "test_patch"])
def test_rows_of_every_family_are_mended_or_refused(tmp_path, family, field):
    row = {
        "instance_id": "org__repo-1",
        "repo": "org/repo",
        "image_name": "img",
        "problem_statement": "It fails.",
        "patch": GOOD,
        "test_patch": GOOD.replace("src/x.py", "tests/test_x.py"),
        "FAIL_TO_PASS": ["tests/test_x.py::test"],
        "PASS_TO_PASS": [],
    }
    rows = [row | {field: row[field].strip()}, row | {field: "@@ -1 +1 @@\n", "instance_id": "org__repo-2"}]
    with pytest.raises(BadTasks, match=rf"rows\.jsonl:2: {field}: git can't read this patch") as caught:
        swebench.load(write(tmp_path, *rows), tmp_path / "out", family)
    assert [task.id for task in caught.value.usable] == ["org__repo-1"]
    for path in (tmp_path / "out").rglob("*.patch"):
        assert path.read_text() == (row["test_patch"] if path.name == "test.patch" else GOOD)
