import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_column_holds_the_prices(self):
        self.assertEqual(lines("column.txt"), ["3.50", "1.20", "8.00"])
