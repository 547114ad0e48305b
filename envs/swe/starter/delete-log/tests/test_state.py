import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_old_log_is_gone(self):
        self.assertIs(Path("/app/old.log").exists(), False)

    def test_new_log_is_kept(self):
        self.assertEqual(lines("new.log"), ["started"])
