"""A backend by name or dotted path, and errors that say what to do."""

import sys

import pytest

from sandboxes.docker import DockerBackend, PoolLimits
from sandboxes.kubernetes.options import PodOptions
from sandboxes.local import LocalBackend
from sandboxes.registry import load_backend

MINE = """
from sandboxes.local import LocalBackend
class Mine(LocalBackend):
    def __init__(self, runtime=None):
        super().__init__()
        self.runtime = runtime
def anything(**options):
    made = LocalBackend()
    made.options = options
    return made
def nothing(): ...
number = 7
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "my_backend.py").write_text(MINE)
    (tmp_path / "broken_backend.py").write_text("import no_such_module_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("my_backend", None)


def test_ours_have_names():
    assert isinstance(load_backend("docker", pool=PoolLimits(each=1), runtime="runsc"), DockerBackend)
    assert isinstance(load_backend("local"), LocalBackend)


def test_an_option_that_is_none_is_not_given():
    assert isinstance(load_backend("local", runtime=None, base_image=None), LocalBackend)


def test_one_of_ones_own_is_found_by_its_path(mine):
    assert load_backend("my_backend:Mine", runtime="x").runtime == "x"
    assert load_backend("my_backend:anything", a=1, b=None).options == {"a": 1}


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        (
            "podman",
            {},
            r"--env.sandbox podman: there is none of that name; choose docker, e2b, kubernetes, local, or .*:name",
        ),
        ("my_backend", {}, r"there is none of that name"),
        ("no_such_module:X", {}, r"no_such_module can't be imported.*PYTHONPATH"),
        ("broken_backend:X", {}, r"broken_backend can't be imported.*no_such_module_at_all"),
        ("my_backend:X", {}, r"my_backend has no X"),
        ("my_backend:number", {}, r"this is not callable"),
        ("my_backend:nothing", {}, r"nothing: this makes no backend \(its type is NoneType\); subclass"),
        ("local", {"runtime": "runsc"}, r"this backend takes no runtime \(--env.sandbox_runtime\); leave that away"),
        (
            "kubernetes",
            {"pool": 1},
            r"kubernetes: .* takes no pool \(--env.warm_sandboxes\); leave that away",
        ),
        ("docker", {"pods": PodOptions(warm=1)}, r"docker: this backend takes no pods \(--env.pods\); leave that away"),
        ("my_backend:Mine", {"base_image": "b", "images_mb": 1}, r"takes no base_image, images_mb"),
    ],
)
def test_what_cannot_be_had_says_what_to_do(mine, name, options, expected):
    with pytest.raises(ValueError, match=expected):
        load_backend(name, **options)
