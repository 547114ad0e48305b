import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_errors_are_written_in_order(self):
        self.assertEqual(lines("errors.txt"), ["ERROR disk full", "ERROR no route"])
