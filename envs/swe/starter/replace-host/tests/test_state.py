import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_host_is_replaced(self):
        self.assertEqual(lines("server.conf"), ["host = example.org", "port = 8080"])
