"""The page of a learning run."""

from __future__ import annotations

from pathlib import Path

from envs.lab.curve import Curve, Evaluation
from envs.lab.plots import list_findings, write_page


def test_a_run_is_drawn_on_a_page_that_takes_no_markup_from_outside(tmp_path: Path) -> None:
    curve = Curve(tmp_path)
    curve.steps = [{"step": 1, "reward": 0.5, "group_rewards": [0.5], "entropy": 0.2, "seconds": {"wait": 3.0}}]
    curve.evaluations = [Evaluation(0, {"x": 0.5}, 2), Evaluation(1, {"x": 1.0}, 2)]
    write_page(curve, tmp_path / "learning.html", {"preset": "<smoke>", "environment": {"a": "1"}})
    page = (tmp_path / "learning.html").read_text()
    assert "&lt;smoke&gt;" in page and "<script" not in page
    assert page.count("<svg") == 13
    assert (tmp_path / "curve.svg").read_text().startswith("<svg xmlns")
    assert ("held-out gain", "+50%, no interval (too few tasks, or all alike) (1 task, paired)") in list_findings(curve)
    assert not list(tmp_path.glob("*.tmp"))
