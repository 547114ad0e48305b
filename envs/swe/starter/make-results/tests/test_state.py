import unittest
from pathlib import Path


class State(unittest.TestCase):
    def test_results_is_a_directory(self):
        self.assertIs(Path("/app/results").is_dir(), True)
