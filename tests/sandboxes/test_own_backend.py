"""The conformance suite on a backend that isn't ours."""

import os
import subprocess
import sys
from pathlib import Path

SUITE = Path(__file__).with_name("test_conformance.py")
OWN = """
from contextlib import asynccontextmanager
from sandboxes.base import NotSupported
from sandboxes.local import LocalBackend
from sandboxes.wrapped import WrappedSandbox

class Forgetful(WrappedSandbox):
    async def read_file(self, path, **options):
        return b"something else"

    async def upload(self, archive, path):
        raise NotSupported("this one takes no trees")

class Backend(LocalBackend):
    @asynccontextmanager
    async def open(self, spec):
        assert spec.image == "mine"
        async with super().open(spec) as sandbox:
            yield Forgetful(sandbox)

def factory():
    return Backend()
"""


def test_it_is_tried_in_place_of_ours_and_what_it_cannot_do_is_skipped(tmp_path):
    (tmp_path / "own_backend.py").write_text(OWN)
    options = ["--backend", "own_backend:factory", "--image", "mine", "-p", "no:cacheprovider", "-q", "-n0"]
    chosen = "an_empty_file or a_string_runs or a_tree_of_megabytes"
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", str(SUITE), *options, "-k", chosen],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=SUITE.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 1 passed, 1 skipped" in ran.stdout, ran.stdout + ran.stderr
    assert "test_an_empty_file_makes_the_round_trip[own_backend:factory]" in ran.stdout
    assert "this one takes no trees" in ran.stdout
