"""Keep TRL's checkpoints (1.16) and a run's journal consistent: trained groups are confirmed, the rest given again.

`envs.trainers.trl_async` feeds its AsyncGRPOTrainer, `envs.trainers.trl_grpo` its GRPOTrainer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from transformers.trainer_callback import ExportableState, TrainerCallback

from envs.config import AgentEnvConfig
from envs.running.environment import Environment
from envs.running.feed import FeedThread
from envs.trainers.ledger import Ledger
from envs.trainers.transfer import LoadedWeights

logger = logging.getLogger(__name__)

STATE = "trainer_state.json"
"""The last file of a checkpoint written by transformers."""


def given_reward(completions: Sequence[Any], reward: Sequence[float] = (), **_: Any) -> list[float]:
    """Return the environment's rewards: `reward_funcs` of TRL's trainers (they want some)."""
    return list(reward) or [0.0] * len(completions)


class Fed:
    """A run in a thread to feed a trainer of TRL's, from the newest checkpoint on.

    make_env: makes the environment, in the thread's event loop. output_dir: the trainer's. refuse: raises ValueError
    for options without an effect in it. sink_and_pace: as in `feed`. checkpoint: to resume from; None without one.
    version: of its weights, in steps. adapter: whether one is trained. callback: goes among the trainer's `callbacks`.
    """

    def __init__(
        self,
        make_env: Callable[[], Awaitable[Environment]],
        output_dir: str | Path,
        refuse: Callable[[AgentEnvConfig, str], None],
        *sink_and_pace: Any,
    ) -> None:
        self._output_dir = Path(output_dir)
        self.checkpoint, state = newest_checkpoint(self._output_dir)
        self.version = int(state.pop("version", 0))
        self.adapter = False
        self.ledger = Ledger(**state)
        self.callback = Confirming(self)

        async def checked() -> Environment:
            env = await make_env()
            refuse(env.config, "TRL")
            return env

        self.thread: FeedThread[Any, Any] = FeedThread(checked, *sink_and_pace, trained=self.ledger.trained)

    def weights(self, engine: str, model: str | Path) -> LoadedWeights:
        """Return the transfer of weights to the embedded inference server. model: the folder of its first weights."""
        return LoadedWeights(engine, self._output_dir / "weights", Path(model), self.version)

    def step(self, batches: int) -> None:
        """Note a step of the trainer on its next so many batches."""
        raise NotImplementedError  # abstract: each trainer of TRL's has its own record of a step


class Confirming(TrainerCallback, ExportableState):  # type: ignore[misc]  # transformers is untyped
    """Writes into each checkpoint the rows in its weights, and confirms finished groups."""

    def __init__(self, fed: Fed) -> None:
        self._fed = fed
        self._before = fed.version

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Check that the trainer goes on from the checkpoint of which the trained rows are known. Raises ValueError."""
        self._fed.adapter = hasattr(model, "peft_config")
        known = self._fed.checkpoint
        if state.global_step != (0 if known is None else step_of(known)):
            raise ValueError(
                f"the trainer begins at step {state.global_step}, and the newest checkpoint is {known}: give train() "
                "resume_from_checkpoint, the `checkpoint` beside the `callback`; to go back, move newer ones away"
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check that the trainer computes logprobs at the temperature of sampling. Raises ValueError."""
        if state.is_world_process_zero:
            sampled = self._fed.thread.fed.run.config.temperature
            if args.temperature != sampled:
                raise ValueError(
                    f"TRL's temperature is {args.temperature}, and --env.temperature is {sampled}: its ratios would be "
                    "of other probabilities than the sampled ones; give both the same"
                )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the rows of a step. TRL hands its weights over after this."""
        self._before = self._fed.version
        if state.is_world_process_zero:
            self._fed.step(args.gradient_accumulation_steps)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Confirm the groups in the checkpoint."""
        if state.is_world_process_zero:
            self._fed.thread.call(lambda fed: fed.confirm(self._fed.ledger.trained))

    def state(self) -> dict[str, Any]:
        """Return the state for the checkpoint; weights not yet handed over are of the next version."""
        version = self._fed.version + (self._fed.version == self._before)
        return {"args": {}, "attributes": {"version": version, **self._fed.ledger.state()}}


def newest_checkpoint(output_dir: Path) -> tuple[str | None, dict[str, Any]]:
    """Return the newest complete checkpoint, and the state written into it by `Confirming`.

    Raises ValueError for a checkpoint without this state."""
    for path in sorted(filter(step_of, output_dir.glob("checkpoint-*")), key=step_of, reverse=True):
        try:
            state = json.loads((path / STATE).read_bytes())
        except (OSError, ValueError) as error:
            logger.warning("%s was not written to its end (%s); an older checkpoint is taken", path, error)
            continue
        if (found := state.get("stateful_callbacks", {}).get(Confirming.__name__)) is None:
            raise ValueError(
                f"{path} does not say which groups its weights were trained on; give the trainer the `callback`, and "
                "begin with another output_dir"
            )
        return str(path), dict(found["attributes"])
    return None, {}


def step_of(checkpoint: str | Path) -> int:
    """Return a checkpoint's step by its name; 0 for another folder."""
    number = str(checkpoint).rpartition("-")[2]
    return int(number) if number.isdigit() else 0
