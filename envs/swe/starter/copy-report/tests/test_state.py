import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_backup_is_a_copy(self):
        self.assertEqual(lines("backup.txt"), ["Sales rose by four percent.", "Costs fell."])

    def test_report_is_untouched(self):
        self.assertEqual(lines("report.txt"), ["Sales rose by four percent.", "Costs fell."])
