"""A command's tokenizer."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import programs
import pytest

from atropos_agent.cpu_engine.model import locate
from envs.options import UsageError, tokenizer
from envs.options.tokenizer import load_tokenizer


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
    monkeypatch.setattr(tokenizer, "silence", lambda: pytest.fail("the hub was asked"))
    with pytest.raises(UsageError, match=f"'{name}' can't be loaded .there is no such folder.; give the folder or"):
        load_tokenizer(name)


@pytest.mark.parametrize("given", [True, False])
def test_without_the_hub_only_this_machine_is_searched(tmp_path, monkeypatch, given):
    monkeypatch.setattr(tokenizer, "silence", lambda: "the hub can't be reached: no route")
    asked = []

    def from_pretrained(name, *, local_files_only):
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
