import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_unique_holds_each_line_once(self):
        self.assertEqual(lines("unique.txt"), ["kim", "lee", "max"])
