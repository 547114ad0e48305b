import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_shopping_ends_with_eggs(self):
        self.assertEqual(lines("shopping.txt"), ["milk", "bread", "eggs"])
