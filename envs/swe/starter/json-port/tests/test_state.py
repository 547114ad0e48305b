import unittest
from pathlib import Path


class State(unittest.TestCase):
    def test_port_is_written(self):
        self.assertEqual(Path("/app/port.txt").read_text().strip(), "9443")
