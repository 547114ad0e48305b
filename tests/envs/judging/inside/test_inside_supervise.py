"""What a wrapper's call is taken for."""

import io
import sys

import pytest
import supervise


@pytest.fixture
def tests(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "TESTS", str(tmp_path))
    (tmp_path / "grade.py").write_text("# /logs/verifier\n")
    return tmp_path


def test_the_source_of_a_grader_is_found_wherever_it_comes_from(tests, monkeypatch):
    assert supervise.program([str(tests / "grade.py")]) == ("# /logs/verifier\n", "")
    assert supervise.program(["-c", "print(1)"]) == ("print(1)", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO("print(2)"))
    assert supervise.program(["-"]) == ("print(2)", "print(2)")


def test_a_script_outside_of_the_tests_is_judged_code(tests, tmp_path_factory):
    other = tmp_path_factory.mktemp("app") / "grade.py"
    other.write_text("# /logs/verifier\n")
    assert supervise.program([str(other)]) == ("", "")
    (tests / "link.py").symlink_to(other)
    assert supervise.program([str(tests / "link.py")]) == ("", "")
