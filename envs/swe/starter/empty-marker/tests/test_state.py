import unittest
from pathlib import Path


class State(unittest.TestCase):
    def test_ready_is_an_empty_file(self):
        self.assertEqual(Path("/app/ready").read_bytes(), b"")
