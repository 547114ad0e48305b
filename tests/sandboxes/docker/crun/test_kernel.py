"""Paths that the kernel resolves within a root, and errors that say what was refused."""

import errno
import os

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
    with os.fdopen(kernel.open_in(root, "/absolute", os.O_RDONLY)) as file:
        assert file.read() == "inside"
    with pytest.raises(FileNotFoundError, match="up"):
        kernel.open_in(root, "up", os.O_RDONLY)
    same = kernel.open_in(root, "", os.O_PATH)
    assert os.path.samestat(os.fstat(same), os.fstat(root))
    os.close(same)
    os.close(root)


def test_what_the_kernel_refuses_is_an_error_with_its_number(tmp_path):
    with pytest.raises(OSError, match=r"nowhere|permitted") as caught:
        kernel.mount("overlay", str(tmp_path / "nowhere"), "overlay", 0, "lowerdir=/x")
    assert caught.value.errno in (errno.ENOENT, errno.EPERM)
    with pytest.raises(OSError):
        kernel.enter(0)
