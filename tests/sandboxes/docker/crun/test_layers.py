"""Layers: which an image has, how long one stays, and how many fit."""

import os

import pytest

from sandboxes.base import SandboxError
from sandboxes.docker.crun.layers import (
    Layer,
    acquire_layers,
    copy_layer,
    has_all_layers,
    image_layers,
    mount_overlay,
    release_layers,
    remove_tree,
    snapshot_layers,
)


def test_an_images_layers_have_short_names_the_uppermost_first(tmp_path):
    for number in (1, 2, 3):
        (tmp_path / str(number) / "diff").mkdir(parents=True)
        (tmp_path / str(number) / "link").write_text(f"L{number}\n")
    folders = [str(tmp_path / str(number) / "diff") for number in (1, 2, 3)]
    data = {"UpperDir": folders[2], "LowerDir": f"{folders[1]}:{folders[0]}"}
    assert [layer.name for layer in image_layers({"Data": data})] == [f"overlay2/l/L{number}" for number in (3, 2, 1)]
    assert image_layers({"Data": {"UpperDir": folders[0]}})[0].path == tmp_path / "1" / "diff"
    with pytest.raises(SandboxError, match="not to be found"):
        image_layers({"Data": {"UpperDir": str(tmp_path / "4" / "diff")}})


@pytest.mark.parametrize("relative", [False, True], ids=["whole paths", "a mount of many layers"])
def test_with_containerds_store_layers_are_those_of_a_containers_root(tmp_path, relative):
    store = tmp_path / "containerd" / "snapshots"
    for number in (1, 2, 7, 8):
        (store / str(number) / "fs").mkdir(parents=True)
    (store / "7" / "fs" / ".dockerenv").touch()  # the container's own, below what it writes
    lower = ":".join(f"{'' if relative else f'{store}/'}{number}/fs" for number in (7, 2, 1))
    (tmp_path / "41").mkdir()
    (tmp_path / "41" / "mountinfo").write_text(
        "860 1 0:5 / /proc rw - proc proc rw\n"
        f"861 981 0:212 / / rw - overlay overlay rw,lowerdir={lower},upperdir={store}/8/fs,workdir={store}/8/work\n"
    )
    for _ in range(2):
        layers = snapshot_layers(41, tmp_path / "own" / "layers", "own/layers", tmp_path)
        assert [(layer.path, layer.name) for layer in layers] == [
            (store / "2" / "fs", "own/layers/2"),
            (store / "1" / "fs", "own/layers/1"),
        ]
    assert has_all_layers(tmp_path, layers)
    remove_tree(store / "1")
    assert not has_all_layers(tmp_path, layers)
    for process in (41, 42):
        with pytest.raises(SandboxError, match="not to be found on this host"):
            snapshot_layers(process, tmp_path / "own" / "layers", "own/layers", tmp_path)


async def test_a_layer_goes_with_its_last_user(tmp_path):
    (tmp_path / "frozen").mkdir()
    (tmp_path / "image").mkdir()
    frozen, image = Layer(tmp_path / "frozen", "f", kept=False), Layer(tmp_path / "image", "i")
    acquire_layers((frozen, image))
    acquire_layers((frozen,))
    await release_layers((frozen, image))
    assert frozen.path.exists()
    await release_layers((frozen,))
    assert (frozen.path.exists(), image.path.exists()) == (False, True)


def test_more_layers_than_a_mount_takes_are_told(tmp_path):
    stack = [Layer(tmp_path, "atropos-agent/0123456789ab/100")] * 140
    with pytest.raises(SandboxError, match="140 layers deep"):
        mount_overlay(tmp_path, tmp_path, tmp_path, stack)


@pytest.mark.skipif(os.geteuid() != 0, reason="a whiteout is a device")
def test_a_copy_has_links_whiteouts_and_attributes(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1")
    (source / "b").hardlink_to(source / "a")
    os.mknod(source / "gone", 0o20000, 0)
    os.setxattr(source, "trusted.overlay.opaque", b"y")
    copy_layer(source, tmp_path / "target")
    assert (tmp_path / "target" / "a").stat().st_nlink == 2
    assert (tmp_path / "target" / "gone").is_char_device()
    assert os.getxattr(tmp_path / "target", "trusted.overlay.opaque") == b"y"
    with pytest.raises(OSError, match="can't be copied"):
        copy_layer(tmp_path / "nowhere", tmp_path / "other")


def test_a_tree_is_removed_however_deep(tmp_path):
    above = os.open(tmp_path, os.O_RDONLY)
    os.mkdir("top", dir_fd=above)
    for _ in range(3000):
        inner = os.open("top", os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = inner
        os.mkdir("top", dir_fd=above)
    os.close(above)
    remove_tree(tmp_path / "top")
    assert not (tmp_path / "top").exists()
    remove_tree(tmp_path / "top")


def test_a_deep_tree_takes_few_descriptors_to_remove(tmp_path, monkeypatch):
    """What runs inside would else leave us none for anything else."""
    (tmp_path / "tree" / "/".join("d" * 300) / "file").parent.mkdir(parents=True)
    (tmp_path / "tree" / "d" / "link").symlink_to(tmp_path)
    opened, opening, closing = [0], os.open, os.close

    def count(fd):
        opened.append(opened[-1] + 1)
        return fd

    monkeypatch.setattr(os, "open", lambda *args, **options: count(opening(*args, **options)))
    monkeypatch.setattr(os, "close", lambda fd: (closing(fd), opened.append(opened[-1] - 1))[0])
    remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists() and tmp_path.exists()
    assert max(opened) < 50
