import unittest
from pathlib import Path


class State(unittest.TestCase):
    def test_latest_leads_to_v2(self):
        path = Path("/app/latest")
        self.assertIs(path.is_symlink(), True)
        self.assertEqual(str(path.resolve()), "/app/v2")
