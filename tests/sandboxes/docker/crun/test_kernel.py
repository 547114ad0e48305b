"""Paths that the kernel resolves within a root, what is removed, and errors that say what was refused."""

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.docker.crun import kernel


def test_no_link_leads_out_of_a_root(tmp_path):
    inside = tmp_path / "root"
    (inside / "etc").mkdir(parents=True)
    (inside / "etc/name").write_text("inside")
    (tmp_path / "name").write_text("outside")
    (inside / "up").symlink_to("../../../../name")
    (inside / "absolute").symlink_to("/etc/name")
    root = os.open(inside, os.O_PATH | os.O_DIRECTORY)
    with os.fdopen(kernel.open_in_root(root, "/absolute", os.O_RDONLY)) as file:
        assert file.read() == "inside"
    with pytest.raises(FileNotFoundError, match="up"):
        kernel.open_in_root(root, "up", os.O_RDONLY)
    same = kernel.open_in_root(root, "", os.O_PATH)
    assert os.path.samestat(os.fstat(same), os.fstat(root))
    os.close(same)
    os.close(root)


RENAMING = """
import os
os.makedirs("a/moved")
os.mkdir("b")
print("begun", flush=True)
while True:
    os.rename("a/moved", "b/moved")
    os.rename("b/moved", "a/moved")
"""


def test_what_others_rename_meanwhile_is_no_failure(tmp_path):
    (tmp_path / "root/x/y").mkdir(parents=True)
    (tmp_path / "root/link").symlink_to("x/../x/y/../../x/y/../../x/y/..")
    root = os.open(tmp_path / "root", os.O_PATH | os.O_DIRECTORY)
    with subprocess.Popen([sys.executable, "-c", RENAMING], cwd=tmp_path, stdout=subprocess.PIPE) as others:
        others.stdout.readline()
        try:
            for _ in range(20_000):
                os.close(kernel.open_in_root(root, "link", os.O_PATH | os.O_DIRECTORY))
        finally:
            others.kill()
            os.close(root)


def test_what_the_kernel_refuses_is_an_error_with_its_number(tmp_path):
    with pytest.raises(OSError, match=r"nowhere|permitted") as caught:
        kernel.mount("overlay", str(tmp_path / "nowhere"), "overlay", 0, "lowerdir=/x")
    assert caught.value.errno in (errno.ENOENT, errno.EPERM)
    with pytest.raises(OSError):
        kernel.enter(0)


@pytest.mark.parametrize(("what", "arguments"), [("shm", (0, 64)), ("sem", (0, 1)), ("msg", (0,))])
def test_what_is_shared_by_number_is_removed(what, arguments):
    number = getattr(ctypes.CDLL(None), f"{what}get")(*arguments, 0o1600)
    listed = Path(f"/proc/sysvipc/{what}")
    assert number in [int(line.split()[1]) for line in listed.read_text().splitlines()[1:]]
    kernel.remove_ipc_object(what, number)
    assert number not in [int(line.split()[1]) for line in listed.read_text().splitlines()[1:]]
    with pytest.raises(OSError):
        kernel.remove_ipc_object(what, number)
