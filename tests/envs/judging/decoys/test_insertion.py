"""The hidden tests as the sandbox gets them."""

from hypothesis import given, settings
from hypothesis import strategies as st
from planted_modules import PATH, Run

from envs.judging.decoys import insertion
from envs.judging.decoys.insertion import insert_decoys

SOURCE = b"def test_f():\n    assert f(3) == 6\n\ndef test_g():\n    assert f(4) == 8\n"


def test_the_same_tests_have_the_same_sets_in_a_process():
    first = insert_decoys({PATH: SOURCE})
    assert insert_decoys({PATH: SOURCE}) is first
    assert insert_decoys({PATH: SOURCE + b"\n"}) is not first


def test_what_is_no_text_of_this_pythons_lies_there_as_it_was():
    texts = [b"print 'x'\n", b"def test_f(:\n", b"\xff\xfe\x00", b"# coding: no-such\nx = 1\n"]
    texts += [b"x = 1\rdef test_f(): pass\r", b"x = '\x00'\n"]
    broken = {f"/tests/test_{number}.py": text for number, text in enumerate(texts)}
    made = insert_decoys({**broken, PATH: SOURCE})
    assert {path: made.texts[path] for path in broken} == broken
    assert b"__verifier__" in made.texts[PATH]
    assert list(made.source.trees) == [PATH]


def test_tests_that_must_not_pass_stay_as_they_are():
    made = insert_decoys({PATH: SOURCE}, frozenset({"test_a.py::test_g"}))
    assert made.texts[PATH].splitlines()[3:] == SOURCE.splitlines()[3:]
    assert b"want" in made.texts[PATH].splitlines()[1]


def test_a_module_that_decoys_would_break_lies_there_as_it_was(monkeypatch, caplog):
    monkeypatch.setattr(insertion.Text, "edited", lambda text: b"def test_f(:\n")
    made = insert_decoys({"/tests/test_broken.py": SOURCE})
    assert made.texts == {"/tests/test_broken.py": SOURCE}
    assert (made.key.sets, made.key.must) == ({}, {})
    assert "no decoys in /tests/test_broken.py" in caplog.text


NUMBERS = st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-3)
TEXTS = st.text(max_size=12)
VALUES = st.recursive(
    NUMBERS | TEXTS | st.binary(max_size=5) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=6,
)
WAYS = st.sampled_from(
    [
        "assert f({i}) == {want}",
        "assert {want} == f({i})",
        "assert f({i}) == {want}, 'said {{0}}'.format(f({i}))",
        "assert (\n        f(\n            {i}\n        ) ==\n        {want}\n    )",
        "assert True and f({i}) == {want}",
        "case.assertEqual(f({i}), {want})",
        "case.assertEqual({want}, f({i}), msg='no')",
        "got = f({i}); assert got == {want}",
        "with case.subTest(i={i}):\n        assert f({i}) == {want}",
        "for i in [{i}]:\n        assert f(i) == {want}",
    ]
)


@settings(max_examples=60)
@given(st.lists(st.tuples(VALUES, WAYS), min_size=1, max_size=4), st.integers(0, 9))
def test_a_planted_module_passes_with_right_code_and_fails_with_wrong(asserts, seed):
    """Wrong code returns another value, or one that is equal to all."""
    body = [way.format(i=i, want=repr(want)) for i, (want, way) in enumerate(asserts)]
    source = "import unittest\ncase = unittest.TestCase()\ndef test_f():\n    " + "\n    ".join(body) + "\n"
    answers = [want for want, _ in asserts]
    right = Run(source, lambda i: answers[i], seed)
    assert right.failed is None
    assert right.verdict() == ("passed", None)
    wrong = Run(source, lambda i: object() if i == len(answers) - 1 else answers[i], seed)
    assert wrong.verdict()[0] == "failed"
