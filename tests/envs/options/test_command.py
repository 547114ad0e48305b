"""Options of inference servers."""

import pytest

from envs.options import EngineConfig, Options


def test_each_url_is_a_server_of_its_own():
    options = Options(env=None, openai=[EngineConfig(base_url="http://a/v1, http://b/v1,", model_name="m")])
    assert [engine.base_url for engine in options.engines] == ["http://a/v1", "http://b/v1"]
    assert {engine.model_name for engine in options.engines} == {"m"}


def test_an_option_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="no_such_option"):
        EngineConfig(no_such_option=1)
