"""What a command was told of inference servers and of the tokenizer."""

import time
from types import SimpleNamespace

import pytest

from envs.options import EngineConfig, Options, UsageError, command, load_tokenizer


def test_each_url_is_a_server_of_its_own():
    options = Options(env=None, openai=[EngineConfig(base_url="http://a/v1, http://b/v1,", model_name="m")])
    assert [engine.base_url for engine in options.engines] == ["http://a/v1", "http://b/v1"]
    assert {engine.model_name for engine in options.engines} == {"m"}


def test_an_option_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="no_such_option"):
        EngineConfig(no_such_option=1)


def test_a_tokenizer_that_can_not_be_loaded_is_named_with_the_remedy(tmp_path):
    with pytest.raises(UsageError, match="give the folder or the hub name"):
        load_tokenizer(str(tmp_path))
    with pytest.raises(UsageError, match=f"server names its model '{tmp_path}'.*set --env.tokenizer_name"):
        load_tokenizer(str(tmp_path), given=False)


@pytest.mark.parametrize("here", [True, False])
def test_a_hub_that_does_not_answer_is_spoken_of(tmp_path, monkeypatch, caplog, here):
    slow = SimpleNamespace(from_pretrained=lambda name: time.sleep(0.2))
    monkeypatch.setattr("transformers.AutoTokenizer", slow)  # by name: the module replaces itself once it is used
    monkeypatch.setattr(command, "LATE_S", 0.01)
    load_tokenizer(str(tmp_path) if here else "company/model")
    assert ("company/model is still being looked for at the model hub" in caplog.text) == (not here)
