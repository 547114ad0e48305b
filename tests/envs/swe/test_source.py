"""Where tasks come from, and of which nobody has said that they are sound."""

import pytest
from harbor_samples import make_task

from envs.swe.config import SWEEnvConfig
from envs.swe.parsers import tasks_parser
from envs.swe.source import default_limits, judge_problems, load_parts, unchecked_folders
from envs.types import BadTask
from sandboxes.base import Limits


def test_the_starter_pack_and_folders_with_a_manifest_need_no_word(tmp_path):
    assert unchecked_folders("starter", None, "") == []
    assert unchecked_folders("starter", None, str(tmp_path)) == [str(tmp_path)]
    assert unchecked_folders(str(tmp_path), tmp_path / "other.json", "") == []
    (tmp_path / "manifest.json").write_text("{}")
    assert unchecked_folders(str(tmp_path), None, "") == []


def test_tasks_without_network_settings_get_the_runs(tmp_path):
    make_task(tmp_path)
    for network, wanted in (("no-network", False), ("public", True)):
        ((task,), _) = load_parts(SWEEnvConfig(tokenizer_name="any", tasks=str(tmp_path), default_network=network))
        assert task.limits.network is task.hidden.network is wanted


async def test_a_missing_key_of_the_judge_is_told_once_with_the_tasks(monkeypatch):
    monkeypatch.delenv("NO_KEY", raising=False)
    config = SWEEnvConfig(tokenizer_name="any", judge="http://127.0.0.1:9/v1", judge_key="NO_KEY")
    assert await judge_problems(config) == []
    with pytest.raises(BadTask, match="NO_KEY"):
        load_parts(config)


def test_a_check_that_names_no_network_has_that_of_runs(tmp_path):
    given = tasks_parser().parse_args(["check", str(tmp_path)]).default_network
    assert given is None, "the default stands in one place"
    assert default_limits(given) == default_limits(SWEEnvConfig.model_fields["default_network"].default) == Limits()
