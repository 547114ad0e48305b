"""What either starter does with the same mistake, and with the same work: nothing that changes a reward may differ.

docs/sandboxes.md lists what does.
"""

import io
import tarfile

import pytest
from backends import STARTERS

from sandboxes.base import SandboxSpec, StorageFull

ONLY = STARTERS


def archive(*members: tuple[str, bytes, str]) -> bytes:
    """Of names, types and where links lead."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, kind, link in members:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, link, 0o755
            tar.addfile(info)
    return buffer.getvalue()


LINK, FOLDER, FILE, SYMBOLIC = tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.REGTYPE, tarfile.SYMTYPE
LONG = "/".join(["a" * 99] * 50)
MISTAKES = {
    "no archive": (b"xx" * 600, ValueError),
    "a name that leads out": (archive(("../up", FILE, "")), ValueError),
    "a hard link to nothing": (archive(("x", LINK, "missing")), FileNotFoundError),
    "a hard link to nothing in a folder": (archive(("x", LINK, "no/such/missing")), FileNotFoundError),
    "a hard link to a folder": (archive(("d", FOLDER, ""), ("x", LINK, "d")), PermissionError),
    "a hard link by way of a file": (archive(("f", FILE, ""), ("x", LINK, "f/y")), NotADirectoryError),
    "a file in a file": (archive(("f", FILE, ""), ("f/y", FILE, "")), NotADirectoryError),
    "a path that is too long": (archive((LONG, FILE, "")), OSError),
    "a name that is too long": (archive(("n" * 300, FILE, "")), OSError),
    "a link that is too long": (archive(("s", SYMBOLIC, "y" * 5000)), OSError),
}


async def test_archives_that_cannot_be_unpacked_are_the_callers_mistake(box):
    for mistake, (data, error) in MISTAKES.items():
        try:
            await box.upload(data, "t")
        except (OSError, ValueError) as raised:
            assert type(raised) is error, f"{mistake}: {raised!r}"
        else:
            raise AssertionError(f"{mistake} is taken")
    assert (await box.exec("ls /up")).exit_code == 2
    assert (await box.exec("echo fine")).output == "fine\n"


DEEP = """
import os
os.mkdir("deep")
os.chdir("deep")
for _ in range(100):
    os.mkdir("a" * 99)
    os.chdir("a" * 99)
open("file", "w").write("here")
"""


async def test_a_tree_comes_whole_or_is_too_deep(box):
    """The Docker daemon leaves out what has too long a path, and says nothing."""
    deep = "/".join(["a" * 99] * 30)
    assert (await box.exec(["python3", "-c", DEEP])).ok
    for path in ("deep", "."):
        with pytest.raises(OSError, match="File name too long"):
            await box.download(path)
    assert (await box.exec(f"cd deep/{deep} && rm -r a* && echo here >file")).ok
    with tarfile.open(fileobj=io.BytesIO(await box.download("deep"))) as tar:
        members = tar.getmembers()
        assert (len(members), members[-1].name) == (31, f"{deep}/file")
        assert tar.extractfile(members[-1]).read() == b"here\n"


async def test_volumes_that_no_layer_has_are_folders(backend, base_image, tmp_path):
    (tmp_path / "Dockerfile").write_text(f"FROM {base_image}\nVOLUME /data/of/ours /var/lib\n")
    async with backend.open(SandboxSpec(await backend.ensure_image(None, tmp_path))) as box:
        for _ in range(2):
            assert (
                await box.exec("cd /data/of/ours && echo x >f && cat f && ls -d /var/lib")
            ).output == "x\n/var/lib\n"
            await box.reset()


async def test_a_fork_for_which_there_is_no_room_costs_its_parent_nothing(backend, box, monkeypatch):
    def full():
        raise StorageFull("full")

    await box.exec("echo x >f")
    with monkeypatch.context() as patch:
        patch.setattr(backend._sandboxes.disk, "check_room", full)
        with pytest.raises(StorageFull):
            async with box.fork(1):
                pass
    assert (await box.exec("cat f; echo y >f; cat f")).output == "x\ny\n"


async def test_a_large_file_in_the_place_of_a_sessions_text_is_left_alone(box):
    """To give its room back could take process 1 seconds, for which everybody waits."""
    shell = await box.session()
    await shell.run("head -c 8M /dev/urandom >/var/tmp/large; ln -sf /var/tmp/large /dev/shm/.session*/text")
    for _ in range(2):
        assert (await shell.run("stat -c %s /var/tmp/large", timeout=5)).output == "8388608\n"
