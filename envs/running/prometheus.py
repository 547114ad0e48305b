"""A run's figures in Prometheus' text form. Needs prometheus_client, of an extra."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from envs.records.metrics import Metrics

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_NAMED = re.compile(r"[^a-zA-Z0-9_]")
_COUNTERS = {
    "groups": "Finished groups",
    "groups_sent": "Groups that the trainer has accepted",
    "rollouts": "Judged rollouts",
    "solved": "Rollouts that solved their task",
    "tool_calls": "Well-formed tool calls",
    "tool_errors": "Tool calls whose result is an error",
    "malformed_calls": "Calls that could not be read",
    "unshown": "Things that tools have returned and no text can show",
    "tokens": "Tokens of the rows",
    "tokens_sampled": "Trained tokens",
    "tokens_refused": "Sampled tokens that are in no row",
    "compactions": "Times that an agent has made its conversation shorter",
    "tokens_saved": "Tokens by which it was made shorter, about",
    "engine_s": "Seconds spent waiting for inference servers, summed over rollouts",
    "tools_s": "Seconds spent in tools, summed over rollouts",
}
_BY = {
    "failures": "kind",
    "stops": "reason",
    "drifts": "kind",
    "cheats": "sign",
    "untrained": "reason",
    "phases_s": "phase",
}


class Figures:
    """A run's figures as Prometheus asks for them."""

    def __init__(self, metrics: Metrics, labels: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._labels = dict(labels)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def page(self) -> bytes:
        """Return the figures of this moment."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        metrics = self._metrics
        names, values = list(self._labels), list(self._labels.values())
        for name, what in _COUNTERS.items():
            counter = CounterMetricFamily(f"atropos_{name}", what, labels=names)
            counter.add_metric(values, getattr(metrics, name))
            yield counter
        for name, label in _BY.items():
            counter = CounterMetricFamily(f"atropos_{name}_by_{label}", f"{name}, by {label}", labels=[*names, label])
            for key, count in getattr(metrics, name).items():
                counter.add_metric([*values, str(key)], count)
            yield counter
        states = GaugeMetricFamily(
            "atropos_groups_by_state", "Groups, by what became of them", labels=[*names, "state"]
        )
        for state, count in metrics.states.items():
            states.add_metric([*values, state], count)
        yield states
        for name, value in metrics.scalars().items():
            if "/" not in name and name not in _COUNTERS:
                gauge = GaugeMetricFamily(f"atropos_{_NAMED.sub('_', name)}", name.replace("_", " "), labels=names)
                gauge.add_metric(values, value)
                yield gauge
