import unittest
from pathlib import Path


class State(unittest.TestCase):
    def test_count_is_seven(self):
        self.assertEqual(Path("/app/count.txt").read_text().strip(), "7")
