import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_pets_holds_both_lines_in_order(self):
        self.assertEqual(lines("pets.txt"), ["cat", "dog"])
