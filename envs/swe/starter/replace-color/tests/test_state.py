import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_every_red_is_blue(self):
        self.assertEqual(lines("colors.txt"), ["blue car", "green door", "blue and blue"])
