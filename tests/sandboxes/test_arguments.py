"""Programs with options of their own: bounds, the nearest name, short messages, status 2."""

import pytest

from atropos_agent.cpu_engine.__main__ import _parser as engine
from envs.lab.parsers import demo_parser, learn_parser, warm_start_parser
from envs.lab.trainer import parse as trainer
from envs.running.groups import main as groups
from envs.swe.parsers import rejudge_parser
from envs.swe.tasks import main as tasks
from envs.viewer.parsers import view_parser

PROGRAMS = {
    "demo": lambda words: demo_parser().parse_args(words),
    "learn": lambda words: learn_parser().parse_args(words),
    "warmstart": lambda words: warm_start_parser().parse_args(words),
    "engine": lambda words: engine().parse_args(words),
    "trainer": lambda words: trainer(["--model=m", *words]),
    "groups": groups,
    "tasks": tasks,
    "rejudge": lambda words: rejudge_parser().parse_args(words),
    "view": lambda words: view_parser().parse_args(words),
}

WRONG = [
    ("demo", ["--groups", "-1"], "--groups: -1 is too small; give a number of at least 1"),
    ("demo", ["--groups", "0"], "at least 1"),
    ("demo", ["--group-size=two"], "'two' is no whole number"),
    ("demo", ["--grops", "3"], "--grops: there is no such option; did you mean --groups?"),
    ("demo", ["--group_size", "3"], "--group_size: there is no such option; did you mean --group-size?"),
    ("demo", ["--engine-url", "localhost:9001"], "this is no URL of a server"),
    ("demo", ["--tags="], "it is empty"),
    ("learn", ["--steps", "0"], "at least 1"),
    ("learn", ["--step", "3"], "--step: there is no such option; did you mean --steps?"),
    ("learn", ["--preset", "laptp"], "invalid choice: 'laptp'"),
    ("learn", ["--engine-url", ""], "this is no URL of a server"),
    ("warmstart", ["--trials=-1"], "at least 0"),
    ("warmstart", ["--learning-rate=nan"], "nan is not finite"),
    ("engine", ["--port", "70000"], "70000 is no port"),
    ("engine", ["--max-batch=0"], "at least 1"),
    ("trainer", ["--batch-size=-4"], "at least 1"),
    ("trainer", ["--api", "localhost"], "this is no URL of a server"),
    ("groups", ["--stat", "saved", "x"], "--stat: there is no such option; did you mean --state?"),
    ("groups", ["x", "y"], "'y' belongs to no option"),
    ("tasks", ["check", "--repeats", "0"], "at least 1"),
    ("tasks", ["check", "--manifest", "/tmp"], "/tmp is there and is not a file"),
    ("tasks", ["check", "--repeat", "2"], "--repeat: there is no such option; did you mean --repeats?"),
    ("tasks", ["check", "--no-such"], "tasks check --help explains"),
    ("tasks", ["chek"], "chek"),
    ("tasks", ["convert", "functions", "rows.jsonl", "--out", "-"], "nothing is written to the standard output"),
    ("learn", ["--run-dir", __file__], "is there and is not a directory"),
    # A file system that refuses everybody, also root.
    ("warmstart", ["--cache", "/proc/x"], "/proc can't be written"),
    ("demo", ["--run-dir", f"{__file__}/x"], "is not a directory; give another place"),
    ("learn", ["--trainer", "no/such/file.py"], "no/such/file.py is no trainer's name and no file that is there"),
    ("engine", ["--adapter", "no/such/adapter"], "no/such/adapter is not there"),
    ("trainer", ["--out", __file__], "is there and is not a directory"),
    ("tasks", ["forge", "x", "--out", __file__], "is there and is not a directory"),
    ("warmstart", ["--out", "/tmp"], "is there and is not a file"),
    ("demo", ["--run-dir="], "it is empty"),
    ("rejudge", ["run", "--out", __file__], "is there already; name another place"),
    ("view", ["run", "--export", "rollouts.jsonl"], "is no page; give a name that ends in .html"),
    ("demo", ["--run-dir", "x" * 300], "can be no path"),
]


@pytest.mark.parametrize(("program", "words", "expected"), WRONG, ids=[" ".join([p, *w]) for p, w, _ in WRONG])
def test_a_mistake_is_told_in_a_line_with_status_2(program, words, expected, capsys):
    with pytest.raises(SystemExit) as ended:
        PROGRAMS[program](words)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) <= 4 and "--help explains" in err


def test_unknown_options_are_told_together(capsys):
    with pytest.raises(SystemExit):
        PROGRAMS["demo"](["--grops", "3", "--mdel=x", "--groups=2"])
    err = capsys.readouterr().err
    assert "--groups?" in err and "--model?" in err
