"""Where tasks come from, and of which nobody has said that they are sound."""

import pytest

from envs.swe.config import SWEEnvConfig
from envs.swe.source import judge_problems, load_parts, unchecked_folders
from envs.types import BadTask


def test_the_starter_pack_and_folders_with_a_manifest_need_no_word(tmp_path):
    assert unchecked_folders("starter", None, "") == []
    assert unchecked_folders("starter", None, str(tmp_path)) == [str(tmp_path)]
    assert unchecked_folders(str(tmp_path), tmp_path / "other.json", "") == []
    (tmp_path / "manifest.json").write_text("{}")
    assert unchecked_folders(str(tmp_path), None, "") == []


async def test_a_missing_key_of_the_judge_is_told_once_with_the_tasks(monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    config = SWEEnvConfig(tokenizer_name="any", judge="http://127.0.0.1:9/v1", judge_key="NO_KEY")
    assert await judge_problems(config) == []
    with pytest.raises(BadTask, match="NO_KEY"):
        load_parts(config)
