from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


def test_backup_is_a_copy():
    assert lines("backup.txt") == ["Sales rose by four percent.", "Costs fell."]


def test_report_is_untouched():
    assert lines("report.txt") == ["Sales rose by four percent.", "Costs fell."]
