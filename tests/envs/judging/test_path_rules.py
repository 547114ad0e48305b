"""What a task may have judged outside of its source tree, and what stays there as the image has it."""

import tarfile
import threading
from dataclasses import replace

import pytest
from task_formats import write
from tree_samples import Stopped, archive, carried, changes_of, folder, member, start
from verifier_samples import REWARD, image_of, task, verdict_after

from envs.judging.areas import Area, Start, scan_of
from envs.judging.changes import collect_changes
from envs.judging.path_rules import refusal, stays
from envs.types import Collect, Hidden, Limits, Task, VerifierImage


@pytest.mark.parametrize(
    ("paths", "graded"),
    [
        (("/", "/proc/1", "/tests", "/logs/verifier/x", "/logs", "/etc/../tests", "", " "), False),
        (("/etc/nginx", "/usr/local", "/root", "/logs/artifacts", ".git", "/testsuite"), True),
    ],
)
def test_what_is_the_verifiers_own_can_not_be_graded(paths, graded):
    assert [path for path in paths if (refusal(path) is None) is not graded] == []


@pytest.mark.parametrize(
    ("path", "carried"),
    [
        ("/etc/nginx/nginx.conf", "added changed removed"),
        ("/root/notes", "added changed removed"),
        ("/etc/ld.so.preload", "removed"),
        ("/etc/profile.d/x.sh", "removed"),
        ("/etc/hostname", ""),
        ("/root/.bashrc", "removed"),
        ("/root/.zshenv", "removed"),
        ("/etc/zsh/zshenv", "removed"),
        ("/root/.jq", "removed"),
        ("/root/.local/bin/env", ""),
        ("/root/.curlrc", "removed"),
        ("/etc/ssl/openssl.cnf", "removed"),
        ("/etc/apt/apt.conf.d/99hook", "removed"),
        ("/usr/local/bin/tool", "added"),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "added"),
        ("/usr/lib/python3/dist-packages/requests/api.py", "added changed removed"),
        ("/usr/lib/python3/dist-packages/_pytest/runner.py", ""),
        ("/usr/local/lib/python3.11/site-packages/exceptiongroup/__init__.py", ""),
        ("/etc/sudoers.d/backdoor", "removed"),
        ("/usr/bin/python3", "added"),
    ],
)
def test_what_roots_programs_load_or_obey_stays_but_may_be_removed_if_it_is_no_program(path, carried):
    kept = {"added": stays(path, False), "changed": stays(path, True), "removed": stays(path, True, gone=True)}
    assert " ".join(how for how, stay in kept.items() if not stay) == carried


def test_git_is_carried_where_it_is_graded_without_what_makes_git_run_programs():
    names = ["HEAD", "objects/ab/cd", "refs/heads/main", "config", "hooks/pre-commit", "commondir", "logs/HEAD"]
    tree = [
        folder(".git"),
        *(folder(f".git/{name}") for name in ("objects", "objects/ab", "refs", "refs/heads", "hooks")),
    ]
    before = start(member("a", b"1"))
    after = archive(member("a", b"1"), *tree, *(member(f".git/{name}", b"x") for name in names))
    assert not changes_of(before, after)
    found = changes_of(before, after, git=True)
    files = [name for name, (kind, _) in carried(found).items() if kind == tarfile.REGTYPE]
    assert files == [".git/HEAD", ".git/logs/HEAD", ".git/objects/ab/cd", ".git/refs/heads/main"]
    assert found.withheld == ()
    assert {".git/config", ".git/hooks/pre-commit", ".git/commondir"} <= set(found.dropped)


def test_a_file_in_place_of_git_is_not_carried():
    found = changes_of({}, archive(member(".git", b"gitdir: ./other")), git=True)
    assert (found.added, found.dropped) == ((), (".git",))


def test_a_repository_by_another_name_is_one_too():
    tree = [folder("bare"), folder("bare/objects"), folder("bare/refs"), folder("bare/hooks")]
    files = [member(f"bare/{name}", b"x") for name in ("HEAD", "config", "hooks/post-receive")]
    assert "bare/config" not in changes_of({}, archive(*tree, *files), git=True, root="/srv").added


async def test_a_large_file_elsewhere_that_stayed_as_it_was_is_no_change(monkeypatch):
    monkeypatch.setattr("envs.judging.tree.MAX_CHANGED_BYTES", 10)
    sandbox = Stopped({"/srv": archive(member("large", b"1" * 50), member("small", b"1"))})
    folder, scan = await scan_of(sandbox, "/srv", git=True)
    before = Start(None, {"/srv": Area(folder, scan.tree)})
    sandbox.archives["/srv"] = archive(member("large", b"1" * 50), member("small", b"2"))
    found = await collect_changes(sandbox, before, Hidden())
    assert (found.problem, found.written()) == (None, ["/srv/small"])


async def test_paths_elsewhere_are_compared_with_the_images():
    before = {
        "/etc/x": Area("/etc/x", start(member("same", b"1"), member("old", b"1"), member("gone", b"1"))),
        "/etc/file": Area("/etc", start(member("file", b"1"))),
        "/etc/lost": Area("/etc", start(member("lost", b"1"))),
        "/etc/never": None,
        "/etc/kind": Area("/etc", start(member("kind", b"1"))),
        "/etc/sudoers.d/evil": Area("/etc/sudoers.d", start(member("evil", b"1"))),
        "/etc/profile.d": Area("/etc/profile.d", start(member("evil.sh", b"1"), member("new.sh", b"1"))),
    }
    sandbox = Stopped(
        {
            "/app": archive(member("a", b"1")),
            "/etc/x": archive(member("same", b"1"), member("old", b"2"), member("conftest.py", b"")),
            "/etc/file": archive(member("file", b"2")),
            "/etc/kind": archive(member("inner", b"3"), folder("d")),
            "/etc/profile.d": archive(member("new.sh", b"2")),
        }
    )
    hook = Collect("dump", "root", 5.0)
    found = await collect_changes(sandbox, Start({}, before), Hidden(collect=[hook]))
    assert sandbox.ran == [("dump", {"user": "root", "timeout": 5.0}), "stopped"]
    assert [(where, one.added, one.changed, one.deleted) for where, one in found.elsewhere] == [
        ("/etc/x", (), ("old",), ("gone",)),
        ("/etc", (), ("file",), ()),
        ("/etc", (), (), ("lost",)),
        ("/etc", (), (), ("kind",)),
        ("/etc/kind", ("d", "inner"), (), ()),
        ("/etc/sudoers.d", (), (), ("evil",)),
        ("/etc/profile.d", (), (), ("evil.sh",)),
    ]
    assert found.withheld == ("/etc/x/conftest.py",)
    assert found.added == ("a",)


async def test_paths_elsewhere_are_compared_beside_the_event_loop(monkeypatch):
    """There may be 500,000 of them."""
    threads = []
    monkeypatch.setattr("envs.judging.changes.stays", lambda *_, **__: threads.append(threading.get_ident()))
    await collect_changes(Stopped({"/srv": archive(member("x", b"1"))}), Start(None, {"/srv": None}), Hidden())
    assert threads and threading.get_ident() not in threads


ALIEN = Hidden(own=VerifierImage())
"""Of a task that is judged in another image than the agent's."""


async def test_what_is_graded_alone_leaves_the_source_tree_out():
    sandbox = Stopped({"/app": archive(member("a", b"1")), "/app/out": archive(member("out", b"1"))})
    found = await collect_changes(sandbox, Start(None, {"/app/out": None}), ALIEN)
    assert (found.added, [where for where, _ in found.elsewhere]) == ((), ["/app"])


async def test_a_path_that_holds_the_source_tree_leaves_that_to_it():
    tree = archive(folder("app"), member("app/a", b"1"), member("b"))
    sandbox = Stopped({"/srv/app": archive(member("a", b"1")), "/srv": tree}, "/srv/app")
    found = await collect_changes(sandbox, Start({}, {"/srv": None}), Hidden())
    assert (found.added, [one.added for _, one in found.elsewhere]) == (("a",), [("b",)])


async def test_in_another_image_programs_stay():
    sandbox = Stopped({"/usr": archive(folder("bin"), member("bin/cat", b"evil"), member("notes", b"1"))})
    found = await collect_changes(sandbox, Start(None, {"/usr": None}), ALIEN)
    assert [one.added for _, one in found.elsewhere] == [("bin", "notes")]


CHECK = """
import os, subprocess, sys
ok = open("/etc/app/app.conf").read() == "new\\n" and not os.path.exists("/etc/app/old.conf")
ok = ok and open("/app/secret").read() == "s\\n" and os.stat("/app/secret").st_mode & 0o777 == 0o600
log = subprocess.run(["git", "log", "--format=%s"], cwd="/app", capture_output=True, text=True)
print(log, file=sys.stderr)
sys.exit(not (ok and log.stdout == "second\\nfirst\\n"))
"""
TEST_SH = """
if python3 /tests/check.py; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""
WORK = """
cd /app && echo new > /etc/app/app.conf && rm /etc/app/old.conf && echo s > secret && chmod 600 secret
echo x > x && git add x && git -c user.name=a -c user.email=a@b commit -q -m second
echo 'touch /tmp/hooked' > .git/hooks/post-index-change; chmod +x .git/hooks/post-index-change
"""


@pytest.mark.docker
async def test_what_a_task_names_is_judged_and_nothing_else(docker_backend, tmp_path):
    tests = write(tmp_path / "tests", {"check.py": CHECK, "test.sh": TEST_SH})
    context = image_of(
        tmp_path,
        True,
        "RUN mkdir /etc/app && echo old > /etc/app/app.conf && echo old > /etc/app/old.conf",
        "RUN git init -q && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first",
    )
    for graded, reward in ((("/etc/app", ".git"), 1.0), ((), 0.0)):
        task = Task("t", "Do it.", Hidden(tests, graded=graded), context=context)
        image = await docker_backend.ensure_image(None, context)
        verdict = await verdict_after(docker_backend, image, task, WORK)
        assert verdict.reward == reward, verdict.explanation


@pytest.mark.docker
async def test_a_separate_verifier_has_an_image_of_its_own(docker_backend, tmp_path):
    image = "FROM x\nWORKDIR /judge\nRUN echo 42 > /judge/answer\nCOPY . /tests/\n"
    script = "cmp /app/out/n /judge/answer; echo $((! $?)) > /logs/verifier/reward.txt\n"
    tests = write(tmp_path / "tests", {"Dockerfile": image, "test.sh": script})
    own = VerifierImage(context=tests, holds_tests=True)
    hidden = Hidden(tests, graded=("/app/out",), graded_alone=True, own=own)
    task = Task("t", "Do it.", hidden, context=image_of(tmp_path, True))
    image = await docker_backend.ensure_image(None, task.context)
    for answer, reward in ((42, 1.0), (43, 0.0)):
        verdict = await verdict_after(docker_backend, image, task, f"mkdir out && echo {answer} > out/n")
        assert verdict.reward == reward, verdict.explanation


@pytest.mark.docker
async def test_files_that_docker_mounts_hinder_no_verdict(docker_backend, base_image, tmp_path):
    sample = task(tmp_path, f"cat /etc/motd; {REWARD.format(1)}", graded=("/etc",))
    online = replace(sample, limits=Limits(network=True), hidden=replace(sample.hidden, network=True))
    verdict = await verdict_after(docker_backend, base_image, online, "echo mine | tee /etc/motd >> /etc/hosts")
    assert (verdict.reward, verdict.output) == (1.0, "mine\n")
