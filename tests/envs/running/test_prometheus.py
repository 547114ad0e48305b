"""A run's figures in Prometheus' text form."""

from samples import rollout

from envs.records.metrics import Metrics
from envs.running.prometheus import Figures


def test_the_page_has_the_figures_of_its_moment_with_every_label():
    metrics = Metrics()
    figures = Figures(metrics, {"environment": "sums"})
    assert b'atropos_rollouts_total{environment="sums"} 0.0' in figures.page()
    metrics.count_rollout(rollout())
    assert b'atropos_rollouts_total{environment="sums"} 1.0' in figures.page()
