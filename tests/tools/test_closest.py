"""What a text that was not found may have meant."""

from tools.closest import find_closest

TEXT = "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n"


def test_line_numbers_are_recognised():
    assert find_closest("     1\tdef add(a, b):\n     2\t    return a + b", TEXT) == (
        "leave out the line numbers",
        0,
        2,
    )


def test_whitespace_alone_is_told():
    assert find_closest("def subtract(a,b):\n  return a-b", TEXT) == ("only the whitespace differs", 4, 6)


def test_similar_lines_are_found_around_the_longest():
    assert find_closest("def substract(a, b):\n    return a - c", TEXT) == ("the closest lines differ", 4, 6)


def test_nothing_similar_is_none():
    assert find_closest("SELECT * FROM users", TEXT) is None
    assert find_closest("   \n", "") is None
