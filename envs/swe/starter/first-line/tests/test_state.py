import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_first_line_is_written(self):
        self.assertEqual(lines("first.txt"), ["boot ok"])
