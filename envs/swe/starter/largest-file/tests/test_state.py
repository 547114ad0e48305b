import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_answer_names_the_largest(self):
        (answer,) = lines("answer.txt")
        self.assertEqual(answer.strip().rpartition("/")[2], "pine.txt")
