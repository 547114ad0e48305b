import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_cache_is_gone(self):
        self.assertIs(Path("/app/cache").exists(), False)

    def test_main_is_kept(self):
        self.assertEqual(lines("main.txt"), ["keep me"])
