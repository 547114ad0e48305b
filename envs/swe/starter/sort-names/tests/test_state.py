import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_sorted_is_in_order(self):
        self.assertEqual(lines("sorted.txt"), ["anna", "ben", "karl", "mia", "zoe"])
