"""A diff shows what was changed, and can't be made to cost more than it is worth."""

import subprocess

import pytest
from tree_samples import archive, folder, member, symlink
from verifier_samples import REWARD, task, verdict_after

from envs.judging.changes import Changes
from envs.judging.patch import MAX_PATCH, old_files, patch_of
from sandboxes.base import ExecResult

NUMBERS = "".join(f"line {n}\n" for n in range(60)).encode()


def changed(before, after, path="a.txt"):
    """The diff of one changed file."""
    return patch_of(Changes(archive(member(path, after)), changed=(path,)), {"/app": {path: before}}, "/app")


@pytest.mark.parametrize(
    "after",
    [
        NUMBERS.replace(b"line 30\n", b"other\n"),
        NUMBERS.replace(b"line 0\n", b"").replace(b"line 59\n", b"line 59"),
        b"",
        b"first\n" + NUMBERS + b"last",
        NUMBERS.replace(b"line 3\n", b"a\x0cb\rc\n").replace(b"line 50\n", b"\n\n\n"),
    ],
)
def test_a_diff_leads_from_the_old_file_to_the_new_one(tmp_path, after):
    (tmp_path / "a.txt").write_bytes(NUMBERS)
    patch = changed(NUMBERS, after).encode()
    subprocess.run(["git", "apply", "-p1", "-"], cwd=tmp_path, input=patch, check=True, capture_output=True)
    assert (tmp_path / "a.txt").read_bytes() == after


def test_files_that_are_new_or_gone_are_shown_as_such(tmp_path):
    changes = Changes(archive(folder("d"), member("d/new.py", b"x\n"), symlink("l", "d")), ("d", "d/new.py", "l"))
    changes = Changes(changes.archive, added=changes.added, deleted=("old.py", "empty"))
    patch = patch_of(changes, {"/app": {"old.py": b"y\n"}}, "/app")
    assert "diff --git a/d/new.py b/d/new.py\nnew file\n--- /dev/null\n+++ b/d/new.py\n@@ -0,0 +1 @@\n+x\n" in patch
    assert "diff --git a/old.py b/old.py\ndeleted file\n--- a/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n" in patch
    assert "empty" not in patch
    assert "new directory" not in patch
    assert patch_of(Changes(archive(folder("d")), added=("d",)), {}, "/app") == "new directory d\n"


def test_what_can_not_be_shown_is_named():
    assert "Binary files differ (2 and 3 bytes)" in changed(b"\0a", b"\0bc")
    assert "its content is not shown" in changed(None, b"x")
    large = b"x\n" * 200_000
    assert "its content is not shown" in changed(b"x\n", large)


def test_changes_outside_of_the_working_directory_have_their_whole_path():
    changes = Changes(elsewhere=(("/etc", Changes(archive(member("hosts", b"1\n")), added=("hosts",))),))
    assert "+++ b/etc/hosts\n" in patch_of(changes, {}, "/app")


def test_a_long_diff_is_cut():
    files = [member(f"{n}.txt", b"word " * 40_000) for n in range(3)]
    patch = patch_of(Changes(archive(*files), added=tuple(info.name for info, _ in files)), {}, "/app")
    assert MAX_PATCH < len(patch) < MAX_PATCH + 100
    assert patch.endswith("[the rest of the diff is left out]\n")


def test_files_that_are_made_to_be_hard_to_compare_are_shown_as_replaced():
    before = "".join(f"{n % 97}\n" for n in range(20_000)).encode()
    after = "".join(f"{n * 31 % 97}\n" for n in range(20_000)).encode()
    assert "@@ -2,19999 +2,19999 @@\n-1\n-2\n" in changed(before, after)


class Silent:
    workdir = "/app"

    def __init__(self, result):
        self.result = result

    async def exec(self, command, **options):
        return self.result


@pytest.mark.parametrize(
    "result",
    [ExecResult(1, b""), ExecResult(0, b"nonsense" * 100), ExecResult(0, archive(member("a", b"1")), truncated=True)],
)
async def test_old_contents_that_can_not_be_read_are_none(result):
    found = await old_files(Silent(result), Changes(changed=("a",)))
    assert not found.get("/app")


@pytest.mark.docker
async def test_a_verdict_carries_what_was_judged_and_what_was_printed(docker_backend, base_image, tmp_path):
    sample = task(tmp_path, f"echo from the tests; cat /etc/hostname; {REWARD.format(1)}", graded=("/etc/motd",))
    command = "echo new > file; echo mine >> /etc/motd"
    verdict = await verdict_after(docker_backend, base_image, sample, command)
    assert "from the tests\n" in verdict.output
    assert "+++ b/file\n@@ -0,0 +1 @@\n+new\n" in verdict.patch
    assert "--- a/etc/motd\n+++ b/etc/motd\n" in verdict.patch
    assert "\n+mine\n" in verdict.patch
