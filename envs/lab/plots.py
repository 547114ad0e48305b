"""A learning run as a self-contained page of plots, and as one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from envs.lab.curve import Curve, Evaluation, gain, rise
from envs.records.disk import replace_file
from envs.records.stats import NO_INTERVAL
from sandboxes.plurals import plural

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 380, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 30, 26
_COLOURS = ("#2457c5", "#d9730d", "#18794e", "#8a3ffc")

PLOTS: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
    ("reward and solve rate", (("reward", "reward"), ("solved", "solved"))),
    ("rollouts whose calls parse", (("parsed", "share"),)),
    ("entropy of sampled places (nats)", (("entropy", "entropy"),)),
    ("logprob of sampled tokens", (("logprob", "trainer"), ("engine_logprob", "inference server"))),
    ("|inference server - trainer| logprob", (("mismatch_fresh", "same weights"), ("mismatch", "all"))),
    ("importance ratio", (("ratio", "mean"),)),
    ("clipped tokens", (("clip_fraction", "share"),)),
    ("age of tokens (steps)", (("lag", "mean"),)),
    ("gradient norm, before clipping", (("grad_norm", "norm"),)),
    ("tokens of a batch", (("tokens", "all"), ("trained_tokens", "trained"))),
    ("seconds of a step", (("seconds/wait", "waiting for rollouts"), ("seconds/train", "training"))),
    ("infrastructure failures, so far", (("failures", "failures"),)),
)
"""Title of each plot, and the figures in it with their names."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Maps values to places. low and high differ."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def plot(title: str, series: Mapping[str, Points], *, bars: Mapping[str, Sequence[Evaluation]] | None = None) -> Markup:
    """Return an SVG of lines over steps. bars: evaluations, each with its 95% interval if it has one."""
    spans = [(e.interval.low, e.interval.high) if e.interval else (e.mean, e.mean) for e in _all_evaluations(bars)]
    values = [y for points in series.values() for _, y in points] + [y for span in spans for y in span]
    steps = [x for points in series.values() for x, _ in points]
    steps += [float(e.step) for e in _all_evaluations(bars)]
    x = _Axis(min(steps, default=0), max([*steps, min(steps, default=0) + 1]), _LEFT, WIDTH - _RIGHT)
    low, high = min([*values, 0.0]), max([*values, 0.0])
    high = 1.0 if 0.7 < high <= 1 else (high * 1.05 if high > low else low + 1)
    y = _Axis(low, high, HEIGHT - _BOTTOM, _TOP)
    parts = [f'<text class="title" x="{_LEFT - 36}" y="16">{escape(title)}</text>']
    for part in range(5):
        value = low + (high - low) * part / 4
        place = y(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{place:.1f}" y2="{place:.1f}"/>')
        number = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        parts.append(f'<text class="tick" x="{_LEFT - 5}" y="{place + 3:.1f}" text-anchor="end">{number}</text>')
    for step in sorted({round(x.low), round((x.low + x.high) / 2), round(x.high)}):
        parts.append(f'<text class="tick" x="{x(step):.1f}" y="{HEIGHT - 9}" text-anchor="middle">{step}</text>')
    names = [*series, *(bars or {})]
    for name, colour in zip(names, _COLOURS, strict=False):
        if name in series:
            path = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in series[name])
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        for one in (bars or {}).get(name, ()):
            low_end, high_end = (one.interval.low, one.interval.high) if one.interval else (one.mean, one.mean)
            parts.append(
                f'<line stroke="{colour}" stroke-width="2" x1="{x(one.step):.1f}" x2="{x(one.step):.1f}" '
                f'y1="{y(low_end):.1f}" y2="{y(high_end):.1f}"/>'
                f'<circle fill="{colour}" cx="{x(one.step):.1f}" cy="{y(one.mean):.1f}" r="4"/>'
            )
    place = WIDTH - _RIGHT
    for name, colour in reversed([*zip(names, _COLOURS, strict=False)] if len(names) > 1 else []):
        parts.append(f'<text class="tick" fill="{colour}" x="{place}" y="27" text-anchor="end">{escape(name)}</text>')
        place -= 9 + 6 * len(name)
    return Markup(f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>')


def _all_evaluations(bars: Mapping[str, Sequence[Evaluation]] | None) -> list[Evaluation]:
    return [one for those in (bars or {}).values() for one in those]


def write_page(curve: Curve, path: Path, config: Mapping[str, Any]) -> None:
    """Write the page, replacing it at once, and beside it `curve.svg`, its two first plots."""
    heads = [plot_held_out(curve), plot(PLOTS[0][0], {name: curve.series(key) for key, name in PLOTS[0][1]})]
    plots = [plot(title, {name: curve.series(key) for key, name in keys}) for title, keys in PLOTS[1:]]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string((files("envs.lab") / "templates/learning.html.j2").read_text("utf-8")).render(
        title=f"Learning run: {config['preset']}",
        style=Markup((files("envs.records") / "templates/report.css").read_text("utf-8")),
        tiles=list_findings(curve),
        config=[(name, str(value)) for name, value in _flatten(config)],
        plots=[*heads, *plots],
        evaluations=curve.evaluations,
        tasks=sorted({name for one in curve.evaluations for name in one.rates}),
    )
    replace_file(path, page.encode())
    replace_file(path.with_name("curve.svg"), _render_picture(heads).encode())


def plot_held_out(curve: Curve) -> Markup:
    """Return the plot of the evaluations."""
    return plot("held-out tasks solved, with 95% intervals", {}, bars={"solved": curve.evaluations})


def list_findings(curve: Curve) -> list[tuple[str, str]]:
    """Return the run's results, as pairs of a name and a figure."""
    found = [("steps", str(len(curve.steps)))]
    those = curve.evaluations
    if those:
        found.append(("held-out before", str(those[0])))
        found.append(("held-out after", str(those[-1])))
    if len(those) > 1:
        difference, spread, tasks = gain(those[0], those[-1])
        uncertainty = NO_INTERVAL if spread is None else f"95% interval {spread:+}"
        found.append(("held-out gain", f"{difference:+.0%}, {uncertainty} ({plural(tasks, 'task')}, paired)"))
    if (risen := rise(curve.steps)) is not None:
        found.append(("training reward", f"{risen.first:.2f} to {risen.last:.2f}"))
        found.append(("its chance, policy fixed", f"p = {risen.p_value:.2g}"))
        if risen.p_wandering is not None:
            found.append(("its chance, policy wandering", f"p = {risen.p_wandering:.2g}"))
    if fresh := curve.series("mismatch_fresh"):
        found.append(("mismatch, same weights", f"{max(value for _, value in fresh):.2g}"))
    return found


def _render_picture(plots: Sequence[Markup]) -> str:
    """Return plots side by side as one SVG file on white."""
    style = (
        ".title{font:600 13px sans-serif}.tick{font:10px sans-serif}.tick:not([fill]){fill:#6a7178}"
        ".grid{stroke:#e3e4e1}"
    )
    placed = "".join(f'<g transform="translate({WIDTH * n},0)">{one}</g>' for n, one in enumerate(plots))
    size = f'width="{WIDTH * len(plots)}" height="{HEIGHT}"'
    inner = placed.replace("<svg ", f'<svg width="{WIDTH}" height="{HEIGHT}" ')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="#fff"/>{inner}</svg>\n'
    )


def _flatten(config: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for name, value in config.items():
        pairs += _flatten(value, f"{prefix}{name} / ") if isinstance(value, dict) else [(prefix + name, value)]
    return pairs
