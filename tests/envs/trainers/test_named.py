"""An environment that another trainer's configuration names, and what its sampling settings mean here."""

import pytest
from sums import Sums

from envs.options import UsageError
from envs.trainers.named import named, sampling_of


def test_options_are_those_of_the_environments_command_line():
    env_cls, options = named("sums:Sums", ["--env.max_steps=3", "--env.group_size", "2"])
    assert env_cls is Sums
    assert (options.env.max_steps, options.env.group_size) == (3, 2)


def test_what_is_misspelt_is_told():
    with pytest.raises(UsageError, match="max_step"):
        named("sums:Sums", ["--env.max_step=3"])
    with pytest.raises(ValueError, match="sums has no Sum"):
        named("sums:Sum", [])


def test_sampling_settings_are_our_options_or_change_nothing_or_are_refused():
    told = {"temperature": 0.7, "top_p": 1.0, "top_k": -1, "max_tokens": 64, "repetition_penalty": 1.0, "n": 1}
    assert sampling_of({**told, "seed": None}) == {"temperature": 0.7, "top_p": 1.0, "max_reply_tokens": 64}
    assert sampling_of({"top_k": 20, "min_p": 0.1}) == {"top_k": 20, "min_p": 0.1}
    with pytest.raises(ValueError, match="no effect here: repetition_penalty, typical_p"):
        sampling_of({"repetition_penalty": 1.1, "typical_p": 0.5})
