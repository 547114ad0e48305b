import unittest
from pathlib import Path


class State(unittest.TestCase):
    def test_icons_is_a_directory(self):
        self.assertIs(Path("/app/site/images/icons").is_dir(), True)
