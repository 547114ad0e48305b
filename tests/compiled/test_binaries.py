"""The binaries that are committed are those that their sources give."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
RELEASE = Path("/etc/os-release")


def build(script: Path, out: Path, *compilers: str) -> subprocess.CompletedProcess[str]:
    """Run a build script, where this machine has the toolchain that it names: others give other bytes."""
    release = RELEASE.read_text() if RELEASE.is_file() else ""
    if platform.machine() != "x86_64" or "ID=debian" not in release or 'VERSION_ID="12"' not in release:
        pytest.skip("the committed binaries are of Debian 12's compilers on amd64; .github/workflows compares there")
    if missing := [name for name in compilers if not shutil.which(name)]:
        pytest.skip(f"needs {', '.join(missing)}; {script.relative_to(ROOT)} names the packages")
    return subprocess.run([str(script), str(out)], capture_output=True, text=True, check=False)


def test_the_executor_is_as_committed(tmp_path: Path) -> None:
    folder = ROOT / "sandboxes/docker/executor"
    done = build(folder / "build.sh", tmp_path, "musl-gcc", "aarch64-linux-gnu-gcc", "curl")
    assert (tmp_path / "executor-amd64").read_bytes() == (folder / "executor-amd64").read_bytes(), done.stderr
    if not (tmp_path / "executor-arm64").exists() and "curl" in done.stderr:
        pytest.skip(f"musl for arm64 can't be fetched: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "executor-arm64").read_bytes() == (folder / "executor-arm64").read_bytes()
