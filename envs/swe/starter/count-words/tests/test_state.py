import unittest
from pathlib import Path


class State(unittest.TestCase):
    def test_count_is_eleven(self):
        self.assertEqual(Path("/app/words.txt").read_text().strip(), "11")
