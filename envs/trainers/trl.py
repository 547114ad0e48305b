"""Keep TRL's checkpoints (1.16) and a run's journal consistent: trained groups are confirmed, the rest given again.

`envs.trainers.trl_async` feeds its AsyncGRPOTrainer, `envs.trainers.trl_grpo` its GRPOTrainer.
"""

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
run and after TRL's own."""


def given_reward(completions: Sequence[Any], reward: Sequence[float] = (), **_: Any) -> list[float]:
    """Return the environment's rewards: `reward_funcs` of TRL's trainers (they want some)."""
    return list(reward) or [0.0] * len(completions)


class TrlFeed(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """A run in a thread to feed a trainer of TRL's, from the newest checkpoint on.

    make_env: makes the environment, in the thread's event loop. output_dir: the trainer's. refuse: raises ValueError
    for options without an effect in it. feeding: sink and pace, as in `feed`. checkpoint: to resume from; None without
    one. saved: our part of it. version: of its weights, in steps. adapter: whether one is trained. callback: goes among
    the trainer's `callbacks`; it writes into each checkpoint the rows in its weights, and confirms finished groups.
    without_effect: the trainer's settings that the environment's stand in for. finished: makes the set of the groups
    that are not given again.
    """

    finished: ClassVar[type[set[str]]] = set
    without_effect: ClassVar[tuple[str, ...]] = (
        *("top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs", "cache_implementation"),
        *("chat_template_kwargs", "max_tool_calling_iterations", "fork_threshold_tokens"),
    )

    def __init__(
        self, make_env: MakeEnv, output_dir: str | Path, refuse: Callable[[AgentEnvConfig, str], None], *feeding: Any
    ) -> None:
        self.output_dir = Path(output_dir)
        self.checkpoint, self.saved = newest_checkpoint(self.output_dir)
        self.version = int(self.saved.get("version", 0))
        self.adapter = False
        self.ledger = Ledger(self.saved.get("trained", ()), self.saved.get("partly"))
        self.callback = self

        async def checked() -> Environment:
            env = await make_env()
            refuse(env.config, "TRL")
            return env

        self.thread: FeedThread[Any, Any] = FeedThread(checked, *feeding, trained=self.finished(self.ledger.trained))

    def weights(self, engine: str, model: str | Path) -> LoadedWeights:
        """Return the transfer of weights to the embedded inference server. model: the folder of its first weights."""
        return LoadedWeights(engine, self.output_dir / "weights", Path(model), self.version)

    def step(self, batches: int) -> None:
        """Note a step of the trainer on its next so many batches."""
        raise NotImplementedError  # abstract: each trainer of TRL's has its own record of a step

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check the trainer's settings. Raises ValueError."""
        known = [field for field in dataclasses.fields(args) if field.name in self.without_effect]
        if given := [field.name for field in known if getattr(args, field.name) != field.default]:
            raise ValueError(
                f"{', '.join(given)} of {type(args).__name__} would have no effect: the environment samples, by its "
                "own options (--env.…); leave them out"
            )
        if Path(args.output_dir).absolute() != self.output_dir.absolute():
            raise ValueError(
                f"the trainer's output_dir is {args.output_dir}, and checkpoints were looked for in {self.output_dir}: "
                "give both the same"
            )

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any = None, **_: Any) -> None:
        """Check that the trainer goes on from the checkpoint of which the trained rows are known. Raises ValueError."""
        self.adapter = hasattr(model, "peft_config")
        if state.stateful_callbacks.get(OURS, {}).get("attributes", {}) != self.saved:
            raise ValueError(
                f"the trainer begins at step {state.global_step}, and the newest checkpoint is {self.checkpoint}: "
                "give train() resume_from_checkpoint, the `checkpoint` beside the `callback`; to go back, move newer "
                "ones away"
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Check that the trainer computes logprobs at the temperature of sampling. Raises ValueError."""
        if state.is_world_process_zero:
            sampled = self.thread.fed.run.config.temperature
            if args.temperature != sampled:
                raise ValueError(
                    f"TRL's temperature is {args.temperature}, and --env.temperature is {sampled}: its ratios would be "
                    "of other probabilities than the sampled ones; give both the same"
                )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the rows of a step. TRL hands its weights over after this, and transformers saves the state."""
        if state.is_world_process_zero:
            self.step(args.gradient_accumulation_steps)
            state.stateful_callbacks[OURS] = {"attributes": {"version": self.version + 1, **self.ledger.state()}}

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Confirm the groups in the checkpoint."""
        if state.is_world_process_zero:
            self.thread.call(lambda fed: fed.confirm(self.ledger.trained))


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
                f"{path} does not say which groups its weights were trained on; give the trainer the `callback`, and "
                "begin with another output_dir"
            )
        return str(path), dict(found["attributes"])
    return None, {}
