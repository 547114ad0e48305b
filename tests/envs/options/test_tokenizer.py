"""A command's tokenizer."""

import time
from types import SimpleNamespace

import pytest

from envs.options import UsageError, tokenizer
from envs.options.tokenizer import load_tokenizer


def test_a_tokenizer_that_can_not_be_loaded_is_named_with_the_remedy(tmp_path):
    with pytest.raises(UsageError, match="give the folder or the hub name"):
        load_tokenizer(str(tmp_path))
    with pytest.raises(UsageError, match=f"server names its model '{tmp_path}'.*set --env.tokenizer_name"):
        load_tokenizer(str(tmp_path), given=False)


@pytest.mark.parametrize("here", [True, False])
def test_a_hub_that_does_not_answer_is_spoken_of(tmp_path, monkeypatch, caplog, here):
    slow = SimpleNamespace(from_pretrained=lambda name: time.sleep(0.2))
    monkeypatch.setattr(tokenizer, "AutoTokenizer", slow)
    monkeypatch.setattr(tokenizer, "LATE_S", 0.01)
    load_tokenizer(str(tmp_path) if here else "company/model")
    assert ("company/model is still being looked for at the model hub" in caplog.text) == (not here)
