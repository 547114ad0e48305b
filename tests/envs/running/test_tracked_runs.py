"""Figures of training and of evaluations are logged in every command that takes the option."""

from envs.running import run as running
from envs.running.commands import evaluate_once, process_groups


class Recording:
    """Trackers that note what they are told."""

    def __init__(self, names, tracked):
        self.names, self.tracked = list(names), tracked
        self.told, self.closed = [], False

    def log(self, values, step):
        self.told.append((dict(values), step))

    def close(self):
        self.closed = True


async def test_process_logs_its_groups_and_evaluate_its_evaluation(make_env, monkeypatch):
    opened = []

    def open_trackers(names, tracked):
        opened.append(Recording(names, tracked))
        return opened[-1]

    monkeypatch.setattr(running.Trackers, "open", open_trackers)
    await process_groups(make_env(total_steps=2, track=["tensorboard"], wandb_name="mine"))
    await evaluate_once(make_env(use_wandb=True, run_dir=make_env().run_dir / "evaluation"))
    training, evaluation = opened
    assert (training.names, training.tracked.name) == (["tensorboard"], "mine")
    values, step = training.told[-1]
    assert (values["train/groups"], values["train/rollouts"], step) == (2, 8, 2)
    assert evaluation.names == ["wandb"]
    assert evaluation.told[0][0]["eval/reward"] >= 0
    assert training.closed
    assert evaluation.closed
