"""Texts with versions: prompt templates, and digests that tell versions apart."""

import pytest

from envs.resources import Prompt, Resource, versions_of


def test_a_prompt_template_is_filled_in_and_known_by_its_digest(tmp_path):
    file = tmp_path / "hello.txt"
    file.write_text("Hello {name}, {{not this}}")
    prompt = Prompt.from_file(file)
    assert prompt.format(name="you") == "Hello you, {not this}"
    assert prompt.about == {"version": "hello.txt", "digest": prompt.digest}
    assert prompt.digest == Prompt("Hello {name}, {{not this}}").digest != Prompt("Hello {name}").digest


@pytest.mark.parametrize("values", [{}, {"name": 1, "other": 2}, {"other": 2}])
def test_names_that_are_missing_or_too_many_are_told(values):
    with pytest.raises(ValueError, match=r"has the names name: not so (name|other)"):
        Prompt("Hello {name}").format(**values)


def test_a_template_that_can_not_be_read_is_refused_when_it_is_made():
    with pytest.raises(ValueError, match="can't be read"):
        Prompt("Hello {name")


def test_a_new_version_is_of_the_same_kind_and_has_the_same_names():
    again = Prompt("Hello {name}").again("Good day {name}", "2")
    assert (again.format(name="you"), again.version) == ("Good day you", "2")
    with pytest.raises(ValueError, match="must have the names of the function's own: name"):
        Prompt("Hello {name}").again("Hello {you}", "2")
    assert Resource("{").again("}", "").text == "}", "what is no template may have any braces"


def test_versions_are_told_by_name():
    assert versions_of({"hint": Resource("a", version="1")}) == {"hint": {"version": "1", "digest": "ca978112ca1bbdca"}}


@pytest.mark.parametrize(("value", "said"), [(None, "this is NoneType"), (5, "this is int"), ("\ud800", "surrogates")])
def test_what_the_journal_can_not_keep_is_refused_when_it_is_made(value, said):
    with pytest.raises(ValueError, match=said):
        Resource("a").again(value, "2")
