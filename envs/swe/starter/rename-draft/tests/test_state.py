import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_final_has_the_text_of_the_draft(self):
        self.assertEqual(lines("final.md"), ["# Minutes", "", "We agreed on Tuesday."])

    def test_draft_is_gone(self):
        self.assertIs(Path("/app/draft.md").exists(), False)
