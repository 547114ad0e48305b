"""A command's tokenizer."""

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import programs
import pytest

from atropos_agent.cpu_engine.model import locate
from atropos_agent.tokens.template import ChatTemplate
from envs.options import UsageError, tokenizer
from envs.options.tokenizer import load_tokenizer
from envs.running.run import _fast_tokenizer

PROGRAM = """
from transformers import PreTrainedTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

LETTERS = list(bytes_to_unicode().items())

class ByteTokenizer(PreTrainedTokenizer):
    vocab_files_names = {}
    vocab_size = 256

    def get_vocab(self):
        return {letter: i for i, (_, letter) in enumerate(LETTERS)} | self.added_tokens_encoder

    def _tokenize(self, text, **_):
        return [dict(LETTERS)[byte] for byte in text.encode()]

    def _convert_token_to_id(self, token):
        return self.get_vocab()[token]

    def _convert_id_to_token(self, index):
        return LETTERS[index][1]

    def convert_tokens_to_string(self, tokens):
        known = {letter: byte for byte, letter in LETTERS}
        return bytes(known[letter] for letter in "".join(tokens)).decode(errors="replace")

    def save_vocabulary(self, *_, **__):
        return ()
"""
"""A tokenizer as Kimi's is: Python beside the model's files."""


def test_a_tokenizer_that_can_not_be_loaded_is_named_with_the_remedy(tmp_path):
    with pytest.raises(UsageError, match="give the folder or the hub name"):
        load_tokenizer(str(tmp_path))
    with pytest.raises(UsageError, match=f"server names its model '{tmp_path}'.*set --env.tokenizer_name"):
        load_tokenizer(str(tmp_path), given=False)


@pytest.mark.parametrize(("file", "damage"), [("tokenizer.json", '{"model": {"type": "New"}}'), ("config.json", "[]")])
def test_whatever_is_in_its_files_it_is_no_traceback(tmp_path, file, damage):
    for whole in Path(locate("tiny")).glob("*.js*"):
        shutil.copy(whole, tmp_path)
    (tmp_path / file).write_text(damage)
    with pytest.raises(UsageError, match=r"can't be loaded \(.+\); give the folder"):
        load_tokenizer(str(tmp_path))


def test_a_tokenizer_that_is_a_program_runs_only_with_leave(tmp_path, smollm2_tokenizer):
    folder = tmp_path / "model"
    folder.mkdir()
    controls = ["<|im_start|>", "<|im_end|>"]
    added = {256 + i: {"content": token, "special": True} for i, token in enumerate(controls)}
    about = {
        "tokenizer_class": "ByteTokenizer",
        "auto_map": {"AutoTokenizer": ["own.ByteTokenizer", None]},
        "added_tokens_decoder": added,
        "eos_token": "<|im_end|>",
        "chat_template": smollm2_tokenizer.chat_template,
    }
    (folder / "own.py").write_text(PROGRAM)
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    with pytest.raises(UsageError, match=r"Python program.*set --env.trust_remote_code=true"):
        load_tokenizer(str(folder))
    own = load_tokenizer(str(folder), trust_remote_code=True)
    own.save_pretrained(tmp_path / "sent")  # to workers elsewhere
    for loaded in (own, load_tokenizer(str(tmp_path / "sent"), trust_remote_code=True)):
        template = ChatTemplate(loaded)
        assert template.close_id == 257
        said = "<|im_start|>é <|im_end|>"
        assert template.decode(template.encode(template.quote(said))) == said
        assert not template.controls(controls) & {*template.encode(template.quote(said))}
    with pytest.MonkeyPatch.context() as patch:  # the first Qwen's pieces are bytes
        patch.setattr(own, "get_vocab", lambda: {b"x": 0})
        assert _fast_tokenizer(own) is None, "so tokens are shown as ids"
    shown = _fast_tokenizer(own)
    assert shown.decode([256, 104, 105], skip_special_tokens=False) == own.decode([256, 104, 105])


def test_of_mistral_commons_tokenizer_the_ordinary_one_is_taken_else_made(tmp_path, monkeypatch):
    class MistralCommonBackend:
        chat_template = None

    def made(tekken):
        assert Path(tekken) == tmp_path / "tekken.json"
        return "made"

    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(Path(locate("tiny")) / name, tmp_path)
    (tmp_path / "tekken.json").write_text("{}")
    monkeypatch.setattr(
        tokenizer, "AutoTokenizer", SimpleNamespace(from_pretrained=lambda *_, **__: MistralCommonBackend())
    )
    monkeypatch.setattr(tokenizer, "convert_tekken_tokenizer", made)
    assert load_tokenizer(str(tmp_path)).chat_template == (tmp_path / "chat_template.jinja").read_text()
    (tmp_path / "chat_template.jinja").unlink()
    assert load_tokenizer(str(tmp_path)) == "made"


@pytest.mark.parametrize("name", ["/no/such/folder", "./typo", "../typo", "~/models/typo", "models/company/typo"])
def test_a_folder_that_is_not_there_is_asked_of_no_hub(monkeypatch, name):
    monkeypatch.setattr(tokenizer, "unavailable_reason", lambda: pytest.fail("the hub was asked"))
    with pytest.raises(UsageError, match=f"'{name}' can't be loaded .there is no such folder.; give the folder or"):
        load_tokenizer(name)


@pytest.mark.parametrize("given", [True, False])
def test_without_the_hub_only_this_machine_is_searched(tmp_path, monkeypatch, given):
    monkeypatch.setattr(tokenizer, "unavailable_reason", lambda: "the hub can't be reached: no route")
    asked = []

    def from_pretrained(name, *, local_files_only, **_):
        asked.append(local_files_only)
        raise OSError("not here")

    monkeypatch.setattr(tokenizer, "AutoTokenizer", SimpleNamespace(from_pretrained=from_pretrained))
    with pytest.raises(UsageError, match=r"company/model' .*no route\).*--env.tokenizer_name|no route.*hf download"):
        load_tokenizer("company/model", given=given)
    with pytest.raises(UsageError, match="not here"):
        load_tokenizer(str(tmp_path), given=given)
    assert asked == [True, False]


def test_a_tokenizer_named_on_a_machine_without_network_is_refused_within_seconds():
    options = ["--env.total_steps", "1", "--openai.base_url", "http://127.0.0.1:9/v1", "--openai.model_name", "m"]
    command = ["-m", "envs.swe", "process", *options, "--env.tokenizer_name", "company/model"]
    ran = programs.run(command, env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"})
    assert ran.returncode == 2
    assert "Retrying" not in ran.stderr
    assert "`hf download company/model`" in ran.stderr
