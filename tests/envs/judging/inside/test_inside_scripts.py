"""The shell scripts that run inside the verifier's sandbox."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import envs.judging

INSIDE = Path(envs.judging.__file__).parent / "inside"
SHELLS = [shell for shell in (["sh"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(shell[0])]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
@pytest.mark.parametrize(
    "path, folders",
    [("/a:/b c", ["/a", "/b c"]), (":/a", ["", "/a"]), ("/a:", ["/a", ""]), ("/a::*", ["/a", "", "*"]), ("", [""])],
)
def test_the_walk_through_path_names_each_folder_once_in_its_order(shell, path, folders):
    script = f'. {INSIDE}/path.sh; show() {{ echo "<$1>"; }}; PATH=$LOOK; each_folder show'
    program = shutil.which(shell[0])
    ran = subprocess.run(
        [program, *shell[1:], "-c", script], env={"LOOK": path}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "".join(f"<{folder}>\n" for folder in folders)


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the library is Linux's")
@pytest.mark.parametrize("name", ["preload-amd64.so", "preload-arm64.so"])
def test_the_preload_library_knows_the_paths_of_the_scripts(name):
    data = (INSIDE / name).read_bytes()
    for path in (b"/verifier/preload.so", b"/verifier/bin/", b"/verifier/since", b"/verifier/workdir"):
        assert path in data
