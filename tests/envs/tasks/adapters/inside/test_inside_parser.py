"""A dataset's own parser, run as `parser.py` of a task."""

import subprocess
import sys
from pathlib import Path

import envs.tasks.adapters

INSIDE = Path(envs.tasks.adapters.__file__).parent / "inside"
OF_A_DATASET = """
def parser(text):
    print("said by the parser itself")
    return dict(line.split("=") for line in text.splitlines())

"""


def test_what_the_parser_finds_is_printed_in_our_words_and_what_it_says_is_not(tmp_path):
    (tmp_path / "parser.py").write_text(OF_A_DATASET + (INSIDE / "parser.py").read_text())
    printed = b"a=PASSED\nb=Skipped\nc=ERROR\nna\xffme=pass\n"
    ended = subprocess.run([sys.executable, tmp_path / "parser.py"], check=True, input=printed, capture_output=True)
    lines = ended.stdout.decode().splitlines()
    assert lines == ["passed\t0\ta", "skipped\t0\tb", "failed\t0\tc", "passed\t0\tna\ufffdme"]
