import unittest
from pathlib import Path


def lines(name):
    return Path("/app", name).read_text().splitlines()


class State(unittest.TestCase):
    def test_run_is_executable_by_its_owner(self):
        self.assertEqual(Path("/app/run.sh").stat().st_mode & 0o100, 0o100)

    def test_run_is_untouched(self):
        self.assertEqual(lines("run.sh"), ["#!/bin/sh", "echo running"])
