import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_answer_names_the_file(self):
        (answer,) = lines("answer.txt")
        self.assertEqual(str(Path("/app", answer.strip()).resolve()), "/app/rooms/blue/chest/treasure.txt")
