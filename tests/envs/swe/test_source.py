"""Where tasks come from, and of which nobody has said that they are sound."""

from envs.swe.source import unchecked


def test_the_starter_pack_and_folders_with_a_manifest_need_no_word(tmp_path):
    assert unchecked("starter", None, "") == []
    assert unchecked("starter", None, str(tmp_path)) == [str(tmp_path)]
    assert unchecked(str(tmp_path), tmp_path / "other.json", "") == []
    (tmp_path / "manifest.json").write_text("{}")
    assert unchecked(str(tmp_path), None, "") == []
