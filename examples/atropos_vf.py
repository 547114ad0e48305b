"""An environment as a verifiers plugin, found by its name: verifiers takes no dotted ones.

    PYTHONPATH=examples vf-eval atropos_vf --env.taskset.options '["--env.tasks=starter"]' -n 2 -r 4 --no-push

`--env.taskset.environment package.module:Class` names another environment than envs.swe. See docs/trainers.md.
"""

from envs.trainers.verifiers import AtroposEnv, AtroposTaskset

__all__ = ["AtroposEnv", "AtroposTaskset"]
