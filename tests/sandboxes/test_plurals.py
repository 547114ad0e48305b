"""A number of things reads as a person would say it."""

from sandboxes.plurals import plural


def test_one_thing_is_no_plural():
    assert [plural(n, "task") for n in (0, 1, 2, 1200)] == ["0 tasks", "1 task", "2 tasks", "1,200 tasks"]
    assert plural(1, "reply", "replies") == "1 reply" and plural(2, "reply", "replies") == "2 replies"
