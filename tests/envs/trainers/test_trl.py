"""Settings of TRL's trainers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from envs.config import AgentEnvConfig
from envs.trainers.trl import check_args, check_temperature, given_reward


@dataclass
class Settings:
    """A trainer's."""

    top_p: float = 1.0
    min_p: float | None = None
    learning_rate: float = 1e-6
    num_generations: int = 8
    temperature: float = 1.0


def test_settings_that_the_environments_stand_in_for_are_refused_by_name() -> None:
    check_args(Settings(learning_rate=1e-5, num_generations=4))
    with pytest.raises(ValueError, match=r"top_p, min_p of Settings would have no effect: .* \(--env\.…\); leave them"):
        check_args(Settings(0.9, 0.1))
    with pytest.raises(ValueError, match=r"num_generations of Settings would have no effect"):
        check_args(Settings(num_generations=4), "num_generations")


def test_ratios_of_another_temperature_than_that_of_sampling_are_refused() -> None:
    check_temperature(Settings(temperature=0.7), AgentEnvConfig(temperature=0.7))
    with pytest.raises(ValueError, match=r"TRL's temperature is 1.0, and --env.temperature is 0.7: .* both the same"):
        check_temperature(Settings(), AgentEnvConfig(temperature=0.7))


def test_the_rewards_are_those_that_were_given() -> None:
    assert given_reward(completions=["x", "y"], reward=[0.5, 1.0]) == [0.5, 1.0]
    assert given_reward(completions=["x", "y"]) == [0.0, 0.0], "the async trainer never asks"
