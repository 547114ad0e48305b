"""What functions are given: prompt templates whose digests tell versions apart, and replies told apart by their ids."""

from types import SimpleNamespace

import pytest

from envs.functions import Prompt
from envs.functions.arguments import turn_of


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


@pytest.mark.parametrize(
    ("reply", "number"),
    [(3, 3), ("chatcmpl-12", 12), ("msg_gw_7", 7), (SimpleNamespace(id="resp_gw_0"), 0)],
)
def test_a_reply_is_found_by_what_the_client_has_of_it(reply, number):
    assert turn_of(reply) == number


@pytest.mark.parametrize("reply", ["run-abc", SimpleNamespace(id=None), object(), "chatcmpl"])
def test_what_is_no_reply_of_ours_is_refused(reply):
    with pytest.raises(ValueError, match="no reply of this model"):
        turn_of(reply)
