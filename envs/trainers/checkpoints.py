"""Keep the checkpoints of a transformers Trainer and a run's journal consistent: trained groups are confirmed, the rest
given again."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from transformers.trainer_callback import TrainerCallback

from envs.config import AgentEnvConfig
from envs.running.environment import Environment
from envs.running.feed import FeedThread
from envs.trainers.ledger import Ledger
from envs.trainers.transfer import LoadedWeights

logger = logging.getLogger(__name__)

MakeEnv = Callable[[], Awaitable[Environment]]

STATE = "trainer_state.json"
"""The last file of a checkpoint written by transformers."""

OURS = "Confirming"
"""Our part of it. A callback of this name would be made again at `restore_callback_states_from_checkpoint`, without its
run and after the trainer's own."""


class CheckpointedFeed(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """A run in a thread to feed a trainer of this process, from its newest checkpoint on. It is one of the trainer's
    `callbacks`: it writes into each checkpoint the rows in its weights, and confirms finished groups.

    make_env: makes the environment, in the thread's event loop. args: the trainer's, a dataclass with its `output_dir`
    and the `temperature` of its logprobs. refuse: raises ValueError for options of the environment without an effect.
    feeding: sink and pace, as in `feed`.

    checkpoint: to resume from; None without one. version: of its weights, in steps. model: what is trained, from the
    start on. without_effect: settings of the trainer that the environment's stand in for. finished: makes the set of
    the groups that are not given again.

    Raises ValueError for settings that don't fit; those of sampling when the thread begins.
    """

    without_effect: ClassVar[tuple[str, ...]] = ()
    finished: ClassVar[type[set[str]]] = set

    def __init__(self, make_env: MakeEnv, args: Any, refuse: Callable[[AgentEnvConfig], None], *feeding: Any) -> None:
        refuse_without_effect(args, self.without_effect)
        self._folder = Path(args.output_dir)
        self.checkpoint, self._saved = newest_checkpoint(self._folder)
        self.version = int(self._saved.get("version", 0))
        self.model: Any = None
        self.ledger = Ledger(self._saved.get("trained", ()), self._saved.get("partly"))
        self._confirmed = set(self.ledger.trained)

        async def checked() -> Environment:
            env = await make_env()
            refuse(env.config)
            refuse_temperature(args, env.config)
            return env

        self.thread: FeedThread[Any, Any] = FeedThread(checked, *feeding, trained=self.finished(self.ledger.trained))

    def weights(self, engine: str, model: str | Path) -> LoadedWeights:
        """Return the transfer of weights to the embedded inference server. model: the folder of its first weights."""
        return LoadedWeights(engine, self._folder / "weights", Path(model), self.version)

    def step(self, batches: int) -> None:
        """Note a step of the trainer on its next so many batches."""
        raise NotImplementedError  # abstract: each trainer has its own record of a step

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any = None, **_: Any) -> None:
        """Check that the trainer goes on from the checkpoint of which the trained rows are known. Raises ValueError."""
        self.model = model
        if state.stateful_callbacks.get(OURS, {}).get("attributes", {}) != self._saved:
            raise ValueError(
                f"the trainer begins at step {state.global_step}, and the newest checkpoint is {self.checkpoint}: "
                "give train() the `checkpoint` of this feed as resume_from_checkpoint; to go back, move newer ones away"
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the rows of a step. TRL hands its weights over after this, and transformers saves the state."""
        if state.is_world_process_zero:
            self.step(args.gradient_accumulation_steps)
            state.stateful_callbacks[OURS] = {"attributes": {"version": self.version + 1, **self.ledger.state()}}

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Confirm the groups that are new in the checkpoint."""
        if state.is_world_process_zero:
            new = self.ledger.trained - self._confirmed
            self.thread.call(lambda fed: fed.confirm(new))
            self._confirmed |= new


def refuse_without_effect(args: Any, names: Sequence[str]) -> None:
    """Raise ValueError if a trainer is given any of these settings."""
    known = [field for field in dataclasses.fields(args) if field.name in names]
    if given := [field.name for field in known if getattr(args, field.name) != field.default]:
        raise ValueError(
            f"{', '.join(given)} of {type(args).__name__} would have no effect: the environment samples, by its own "
            "options (--env.…); leave them out"
        )


def refuse_temperature(args: Any, config: AgentEnvConfig) -> None:
    """Raise ValueError if a trainer computes logprobs at another temperature than that of sampling."""
    if args.temperature != config.temperature:
        raise ValueError(
            f"{type(args).__name__} has temperature {args.temperature}, and --env.temperature is {config.temperature}: "
            "ratios would be of other probabilities than the sampled ones; give both the same"
        )


def newest_checkpoint(output_dir: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the newest complete checkpoint, and our part of its state.

    Raises ValueError for a checkpoint without this state."""
    named = {path.name.removeprefix("checkpoint-"): path for path in output_dir.glob("checkpoint-*")}
    for path in (named[step] for step in sorted(filter(str.isdecimal, named), key=int, reverse=True)):
        try:
            state = json.loads((path / STATE).read_bytes())
        except (OSError, ValueError) as error:
            logger.warning("%s was not written to its end (%s); an older checkpoint is taken", path, error)
            continue
        if (found := state.get("stateful_callbacks", {}).get(OURS)) is None:
            raise ValueError(
                f"{path} does not say which groups its weights were trained on; give the trainer this feed among its "
                "`callbacks`, and begin with another output_dir"
            )
        return str(path), dict(found["attributes"])
    return None, {}
