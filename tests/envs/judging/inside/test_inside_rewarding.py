"""What a grader imports, and how it is told where the reward goes. Whole calls are in test_inside_supervise.py."""

import pytest
import rewarding


@pytest.mark.parametrize(
    "source, names",
    [
        ("import a, b.c as d", ["a", "b.c"]),
        ("from a.b import c, d", ["a.b", "a.b.c", "a.b.d"]),
        ("if x:\n    from . import c", [".", ".c"]),
        ("from .a import b", [".a", ".a.b"]),
        ("x = 'import a'", []),
    ],
)
def test_what_a_program_imports_is_read(source, names):
    assert list(rewarding.imports(source)) == names


@pytest.mark.parametrize(
    "source, args, told",
    [
        ("", ["--out=/logs/verifier/reward.json"], True),
        ("", ["/logs/verifier"], True),
        ("", ["/logs/verifier/report.txt"], False),
        ("os.environ['WHERE']", [], True),
        ("os.environ['WHEREVER']", [], False),
    ],
)
def test_a_program_is_told_of_the_reward_by_an_argument_or_a_variable(monkeypatch, source, args, told):
    monkeypatch.setenv("WHERE", "/logs/verifier/reward.txt")
    assert rewarding.is_told_of_reward(source, args) == told


def test_helpers_are_modules_of_the_tests_and_none_of_what_is_judged(tmp_path, monkeypatch):
    tests, tree = tmp_path / "tests", tmp_path / "app"
    tests.mkdir()
    tree.mkdir()
    monkeypatch.setattr(rewarding, "TESTS", str(tests))
    monkeypatch.setattr(rewarding, "workdir", lambda: str(tree))
    (tests / "grade.py").write_text("import json, helper\n")
    (tests / "helper.py").write_text("import grade\n")
    assert list(rewarding.helpers_of(str(tests / "grade.py"))) == ["import json, helper\n", "import grade\n"]
    (tests / "helper.py").write_text("import solution\n")
    (tree / "solution.py").touch()
    with pytest.raises(LookupError):
        list(rewarding.helpers_of(str(tests / "grade.py")))
