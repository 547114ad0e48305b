"""Where a path that the model gave lies, and what it is told."""

import errno
import os
from types import SimpleNamespace

import pytest

from sandboxes.base import SandboxDied
from tools import ToolError
from tools.paths import check_path, locate, path_error

BOX = SimpleNamespace(workdir="/app")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("a", ("/app", "./a")),
        ("a/b/", ("/app/a", "./b")),
        ("/etc/passwd", ("/etc", "./passwd")),
        ("-rf", ("/app", "./-rf")),
        (".", ("/app/.", ".")),
        ("a/..", ("/app/a/..", ".")),
        ("/", ("/", ".")),
    ],
)
def test_a_path_is_a_directory_and_a_name_that_is_no_option(path, place):
    assert locate(BOX, path) == place


@pytest.mark.parametrize(("path", "expected"), [("", "empty"), ("a\0b", "null")])
def test_what_can_be_no_path_is_the_models_mistake(path, expected):
    with pytest.raises(ToolError, match=expected):
        check_path(path)


def test_a_refusal_names_path_and_reason_but_failures_of_ours_are_raised():
    error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    assert str(path_error("x", error)) == "x: Permission denied"
    with pytest.raises(SandboxDied):
        path_error("x", SandboxDied("gone"))
