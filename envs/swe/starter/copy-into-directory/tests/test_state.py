import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_safe_holds_a_copy(self):
        self.assertEqual(lines("safe/key.pem"), ["7f3a-11c0-be52"])

    def test_key_is_untouched(self):
        self.assertEqual(lines("key.pem"), ["7f3a-11c0-be52"])
