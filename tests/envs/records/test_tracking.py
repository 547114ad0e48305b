"""Figures reach every tracker, without a network."""

import os
import subprocess
import sys

import pytest

from envs.records import tracking
from envs.records.tracking import TRACKERS, TrackedRun, Trackers, check_trackers


@pytest.fixture
def tracked(tmp_path):
    return TrackedRun("atropos-agent-sums", "sums-1", tmp_path, {"seed": 1, "tags": ["a"]}, "group")


def test_tensorboard_reads_what_was_logged(tracked):
    pytest.importorskip("tensorboardX")
    trackers = Trackers.open(["tensorboard"], tracked)
    trackers.log({"train/reward_mean": 0.5, "groups": 3.0}, 7)
    trackers.close()
    (path,) = (tracked.directory / "tensorboard").iterdir()
    assert b"train/reward_mean" in path.read_bytes()


PROGRAM = """
import sys
from pathlib import Path
from envs.records.tracking import TrackedRun, Trackers

trackers = Trackers.open([sys.argv[1]], TrackedRun("sums", "sums-1", Path(sys.argv[2]), {"seed": 1}, "group"))
trackers.log({"train/reward_mean": 0.5}, 7)
trackers.log({"eval/reward": 0.25}, 4)  # an evaluation ends after later steps were logged
trackers.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pattern"), [("wandb", "run/wandb/offline-run-*/run-*.wandb"), ("trackio", "trackio/sums*.db")]
)
def test_it_keeps_figures_on_this_machine_without_a_network(tmp_path, name, pattern):
    pytest.importorskip(name)
    (tmp_path / "run").mkdir()
    own = {"WANDB_MODE": "offline", "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", PROGRAM, name, str(tmp_path / "run")]
    subprocess.run(command, check=True, timeout=120, env={**os.environ, **own})
    data = b"".join(path.read_bytes() for path in tmp_path.glob(pattern + "*"))
    assert b"train/reward_mean" in data
    assert b"eval/reward" in data


class Recording:
    def __init__(self, fails=False):
        self.told, self.fails, self.closed = [], fails, False

    def log(self, values, step):
        if self.fails:
            raise OSError("the network is down")
        self.told.append((dict(values), step))

    def close(self):
        self.closed = True


def test_a_tracker_that_fails_costs_itself_alone(caplog):
    bad, good = Recording(fails=True), Recording()
    trackers = Trackers({"bad": bad, "good": good})
    for step in range(2):
        trackers.log({"a": 1.0}, step)
    trackers.close()
    assert good.told == [({"a": 1.0}, 0), ({"a": 1.0}, 1)]
    assert good.closed
    assert caplog.text.count("bad takes no figures any more") == 1


def test_what_is_missing_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"--env.track trackio needs a package: pip install"):
        check_trackers(["trackio"])
    check_trackers([])


def test_each_name_of_the_option_has_a_tracker():
    from envs.config import AgentEnvConfig

    config = AgentEnvConfig(tokenizer_name="x", track=list(TRACKERS), use_wandb=True)
    assert config.trackers == list(TRACKERS)


def test_a_tracker_that_can_not_be_opened_is_named_with_its_remedy(tracked, monkeypatch):
    def refuse(tracked):
        raise RuntimeError("no key")

    monkeypatch.setattr(tracking, "TRACKERS", {"wandb": ("wandb", refuse)})
    with pytest.raises(ValueError, match=r"--env.track wandb can't be opened: no key; WANDB_MODE=offline writes"):
        Trackers.open(["wandb"], tracked)
