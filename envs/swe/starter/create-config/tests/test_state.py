import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_config_holds_the_line(self):
        self.assertEqual(lines("app.cfg"), ["debug=true"])
