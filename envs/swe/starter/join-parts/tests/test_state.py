import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_all_holds_both_in_order(self):
        self.assertEqual(lines("all.txt"), ["one", "two", "three", "four"])
