"""Log a run's figures to a tracker: Weights & Biases, trackio, TensorBoard, behind one small interface.

All of them work without a network: W&B with WANDB_MODE=offline, trackio and TensorBoard by writing to this machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from sandboxes.installing import install
from sandboxes.naming import lazy_import

logger = logging.getLogger(__name__)

_WANDB, _TRACKIO, _TENSORBOARD = lazy_import("wandb"), lazy_import("trackio"), lazy_import("tensorboardX")


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A tracked run. project, name: its place at the tracker. group: of related runs; None for none.

    directory: of the run. options: of its start, without secrets.
    """

    project: str
    name: str
    directory: Path
    options: Mapping[str, Any]
    group: str | None = None


class Tracker(Protocol):
    """Takes a run's figures."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log figures of a step of the trainer's, or of the number of groups without a trainer."""
        ...

    def close(self) -> None:
        """Write the rest."""
        ...


class WandbTracker:
    """Weights & Biases."""

    def __init__(self, tracked: TrackedRun) -> None:
        self._run = _WANDB().init(
            project=tracked.project,
            name=tracked.name,
            group=tracked.group,
            config=dict(tracked.options),
            dir=str(tracked.directory),
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, values: Mapping[str, float], step: int) -> None:
        """See `Tracker`. The step is a figure of its own: an evaluation ends after later steps were logged, and W&B
        drops figures of earlier steps."""
        self._run.log({**values, "step": step})

    def close(self) -> None:
        """See `Tracker`."""
        self._run.finish()


class TrackioTracker:
    """trackio, Hugging Face's local dashboard: `trackio show`."""

    def __init__(self, tracked: TrackedRun) -> None:
        self._run = _TRACKIO().init(
            project=tracked.project, name=tracked.name, group=tracked.group, config=dict(tracked.options), embed=False
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        """See `Tracker`."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """See `Tracker`."""
        self._run.finish()


class TensorboardTracker:
    """Event files for TensorBoard, in the folder `tensorboard` of the run's directory."""

    def __init__(self, tracked: TrackedRun) -> None:
        self._writer = _TENSORBOARD().SummaryWriter(logdir=str(tracked.directory / "tensorboard"))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        """See `Tracker`."""
        self._writer.close()


TRACKERS: Mapping[str, tuple[str, Callable[[TrackedRun], Tracker]]] = {
    "wandb": ("wandb", WandbTracker),
    "trackio": ("trackio", TrackioTracker),
    "tensorboard": ("tensorboardX", TensorboardTracker),
}
"""Trackers by name, each with its package."""


class Trackers:
    """Several trackers as one. An exception of one is logged, and it gets no more figures: they never end a run."""

    def __init__(self, trackers: Mapping[str, Tracker]) -> None:
        self._trackers = dict(trackers)

    @classmethod
    def open(cls, names: Sequence[str], tracked: TrackedRun) -> Trackers:
        """Open the trackers of these names. Raises ValueError if one can't be opened."""
        opened = {}
        for name in dict.fromkeys(names):
            try:
                opened[name] = TRACKERS[name][1](tracked)
            except Exception as error:  # trackers have errors of their own, without a common base
                offline = "; WANDB_MODE=offline writes to this machine" if name == "wandb" else ""
                raise ValueError(f"--env.track {name} can't be opened: {error}{offline}") from error
        return cls(opened)

    def log(self, values: Mapping[str, float], step: int) -> None:
        """See `Tracker`."""
        for name, tracker in list(self._trackers.items()):
            if not _succeeded(partial(tracker.log, values, step), f"{name} takes no figures any more; the run goes on"):
                del self._trackers[name]

    def close(self) -> None:
        """See `Tracker`."""
        for name, tracker in self._trackers.items():
            _succeeded(tracker.close, f"{name} could not be closed")


def _succeeded(call: Callable[[], None], problem: str) -> bool:
    """Return whether a call of a tracker ended well; else log the problem."""
    try:
        call()
    except Exception:  # of its own, or of its connection: none may end a run
        logger.exception(problem)
        return False
    return True


def check_trackers(names: Sequence[str]) -> None:
    """Raise ValueError, with the remedy, if a tracker's package is missing."""
    missing = [name for name in names if find_spec(TRACKERS[name][0]) is None]
    if missing:
        raise ValueError(f"--env.track {','.join(missing)} needs a package: {install('telemetry')}")
