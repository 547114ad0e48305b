"""The executor's program and its arguments."""

import io
import tarfile

import pytest

from sandboxes.base import Limits, SandboxError
from sandboxes.docker.executor.container import Kind
from sandboxes.docker.executor.program import EXECUTOR, archive_of, executor_arguments, program_for, root_capabilities


def kind(*, switch_users=False, **limits):
    return Kind("image", Limits(**limits), switch_users=switch_users)


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_there_is_a_static_program_for_each_architecture(architecture):
    assert program_for(architecture).startswith(b"\x7fELF")


def test_a_processor_without_one_is_named():
    with pytest.raises(SandboxError, match="no executor for riscv64"):
        program_for("riscv64")


def test_it_is_an_executable_in_the_root_directory():
    with tarfile.open(fileobj=io.BytesIO(archive_of({EXECUTOR: (b"program", 0o755)}))) as tar:
        (info,) = tar.getmembers()
        assert (info.name, info.mode, tar.extractfile(info).read()) == (EXECUTOR, 0o755, b"program")


def test_limits_and_capabilities_are_its_arguments():
    plain = dict(word.split("=") for word in executor_arguments(kind(disk_mb=3)))
    assert (plain["fsize"], plain["capabilities"], "tunnels" in plain) == (str(3 * 2**20), "800405fb", False)
    assert "tunnels" in dict(word.split("=") for word in executor_arguments(kind(allowed_hosts=("a.example",))))
    assert not any(word.startswith("capabilities") for word in executor_arguments(kind(capabilities="none")))
    assert root_capabilities(kind(capabilities="none", switch_users=True)) == ("SETGID", "SETUID")
