import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_history_ends_with_the_release(self):
        self.assertEqual(lines("history.txt"), ["2024-03-11 start", "2024-04-20 review", "2024-05-03 release"])
