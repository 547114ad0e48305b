"""What a call of Python runs."""

import pytest
from python_call import PythonCall


@pytest.mark.parametrize(
    "argv, kind, what, args",
    [
        ("-m pytest -q", "module", "pytest", ["-q"]),
        ("-X utf8 -m pytest", "module", "pytest", []),
        ("-Xutf8 -W ignore -Im pytest a.py", "module", "pytest", ["a.py"]),
        ("-mpytest a.py", "module", "pytest", ["a.py"]),
        ("-B -u script.py -m x", "script", "script.py", ["-m", "x"]),
        ("-c pass a", "code", "pass", ["a"]),
        ("-Ec pass", "code", "pass", []),
        ("--check-hash-based-pycs always script.py", "script", "script.py", []),
        ("- a", "stdin", "", ["a"]),
        ("", "stdin", "", []),
        ("-W", "stdin", "", []),
    ],
)
def test_what_is_run_follows_its_options(argv, kind, what, args):
    call = PythonCall(argv.split())
    assert (call.kind, call.what, call.args) == (kind, what, args)


def test_options_are_told_apart_from_what_is_run():
    call = PythonCall(["-IBX", "utf8", "-Wignore", "-O", "a.py", "-W", "x"])
    assert call.options == ["-I", "-B", "-Xutf8", "-Wignore", "-O"]
    assert call.kept == ["-Xutf8", "-Wignore", "-O"]
    assert call.safe_path
    assert not PythonCall(["-B", "a.py", "-I"]).safe_path
