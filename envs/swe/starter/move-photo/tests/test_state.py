import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_photo_is_in_the_archive(self):
        self.assertEqual(lines("archive/photo.txt"), ["a bridge at night"])

    def test_photo_is_no_longer_where_it_was(self):
        self.assertIs(Path("/app/photo.txt").exists(), False)
