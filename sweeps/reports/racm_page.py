"""RACM curves as one HTML page that needs no network: verdicts, charts, the figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from hwmodel.measure.racm import Curve, Level, descriptor_gbps
from sweeps.reports.phrases import condition_text, difference_text, size_text
from sweeps.reports.racm_report import Racm, alpha_of, plausible_grid, sentences
from sweeps.results.statistics import LEVEL, interval
from sweeps.results.version import version

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #5d6672; --line: #d5d9de; --back: #fff;
        --c0: #1f6fb5; --c1: #b8631a; --c2: #4b7f52; --c3: #a04668 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --dim: #9aa3ad; --line: #3a4048; --back: #15181c;
          --c0: #6aaae4; --c1: #e0984f; --c2: #7fb987; --c3: #d67f9f }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
       max-width: 80rem; margin: 1.5rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.2rem; margin: 2rem 0 0 }
.sentence { margin: .6rem 0; padding-left: .8rem; border-left: 3px solid var(--c0);
            max-width: 60rem }
.dim { color: var(--dim); font-size: .85rem; margin: .5rem 0; max-width: 60rem }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 22rem), 1fr));
          gap: 1rem 1.5rem; margin-top: .5rem }
figure { margin: 0 } figcaption { font-weight: 600; font-size: .9rem }
svg { width: 100%; height: auto; display: block }
svg text { fill: var(--dim); font: 12px system-ui, sans-serif }
svg .curve { fill: none; stroke-width: 2 } svg .band { stroke: none; opacity: .25 }
svg .grid { stroke: var(--line) } svg .mark { stroke: var(--ink); stroke-dasharray: 5 4 }
svg .limit { fill: none; stroke: var(--dim); stroke-dasharray: 2 3; stroke-width: 1.5 }
.key { display: inline-block; margin-right: 1rem; white-space: nowrap; font-size: .85rem }
.key i { display: inline-block; width: 1em; height: .3em; margin-right: .35em;
         vertical-align: .2em }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem;
        margin-top: .8rem }
th, td { padding: .2rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
         white-space: nowrap }
th:first-child, td:first-child { text-align: left }
.assumed { columns: 20rem; padding: 0; list-style: none; font-size: .85rem }
"""
_WIDTH, _HEIGHT = 420, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 20, 8, 40


class _Axes:
    """Extents in powers of two against alpha, in pixels of the chart."""

    def __init__(self, curves: list[Curve]) -> None:
        sizes = [point.extent_bytes for point in curves[0].points]
        self.first, self.last = math.log2(sizes[0]), math.log2(sizes[-1])
        highest = max(alpha_of(point).mean for curve in curves for point in curve.points)
        self.top = max(1.05, math.ceil(highest * 20 + 1) / 20)

    def x(self, extent: int) -> float:
        share = (math.log2(extent) - self.first) / (self.last - self.first)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def y(self, alpha: float) -> float:
        share = min(max(alpha, 0.0), self.top) / self.top
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def line(self, points: list[tuple[int, float]]) -> str:
        return " ".join(f"{self.x(extent):.1f},{self.y(value):.1f}" for extent, value in points)


def page(racm: Racm) -> str:
    """One self-contained page."""
    title = f"{escape(racm.device.name)}: what random access costs"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} - bankwise</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{chr(10).join(_body(racm, title))}\n</body></html>\n"
    )


def _body(racm: Racm, title: str) -> Iterator[str]:
    yield f"<h1>{title}</h1>"
    yield (
        '<p class="dim">alpha(s) = bandwidth of random extents of s bytes over that of a sequential'
        f" stream under the same condition. Bands: {LEVEL:.0%} intervals over "
        f"{len(racm.curves[0].sequential_gbps)} replications. Dashed: the threshold, "
        f"{racm.threshold:g}, and the extent asked about, {size_text(racm.extent)}.</p>"
    )
    for level in racm.levels():
        yield f'<p class="sentence">{_prose(" ".join(sentences(racm, level)))}</p>'
    for level in racm.levels():
        yield from _level(racm, level)
    yield from _plausible(racm)
    yield from _origin(racm)


def _level(racm: Racm, level: Level) -> Iterator[str]:
    found = racm.of(level)
    described = found[0].condition
    whole = level == "device"
    yield f"<h2>{'All channels' if whole else 'One channel'}</h2>"
    said = _prose(condition_text(described))
    yield f'<p class="dim">As described: {said}.{_note(racm, level)}</p>'
    axes = _Axes(found)
    charts = {"alpha by read share": "read_share", "alpha by controller queues": "read_queue"}
    if whole:
        charts["alpha by DMA window"] = "window_bytes"
    yield '<div class="charts">'
    for caption, name in charts.items():
        base = getattr(described, name)
        varied = [c for c in found if c == found[0] or getattr(c.condition, name) != base]
        yield _chart(caption, varied, axes, racm)
    yield "</div>"
    yield _table(found)


def _note(racm: Racm, level: Level) -> str:
    if level == "channel":
        return " Extents are bytes of that channel; each 4 KiB of them is read or written."
    assert racm.device.accelerator is not None
    return (
        f" {racm.device.accelerator.dma.engines} DMA engines. Sequential: one stream that they"
        " share by 4 KiB. At random each walks extents of its own, so that even the longest"
        " open rows against each other. Dotted: the most that their descriptors allow."
    )


def _chart(caption: str, curves: list[Curve], axes: _Axes, racm: Racm) -> str:
    described = racm.of(curves[0].condition.level)[0]
    parts, keys = list(_frame(axes, racm)), []
    if described.condition.level == "device":
        parts.append(_descriptors(described, axes, racm))
    for i, curve in enumerate(curves):
        parts.append(_curve(curve, axes, i))
        text = difference_text(curve.condition, described.condition)
        keys.append(
            f'<span class="key"><i style="background:var(--c{i})"></i>{escape(text)}</span>'
        )
    return (
        f"<figure><figcaption>{escape(caption)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(caption)} over extents; figures in the table below">'
        f"{''.join(parts)}</svg><div>{''.join(keys)}</div></figure>"
    )


def _frame(axes: _Axes, racm: Racm) -> Iterator[str]:
    right, floor = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for tenth in range(0, 11, 2):
        y = axes.y(tenth / 10)
        yield f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>'
    for power in range(math.ceil(axes.first), math.floor(axes.last) + 1, 3):
        x = axes.x(1 << power)
        text = size_text(1 << power)
        yield f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{text}</text>'
    yield f'<text x="{right}" y="{_HEIGHT - 6}" text-anchor="end">extent</text>'
    y, x = axes.y(racm.threshold), axes.x(racm.extent)
    yield f'<line class="mark" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
    yield f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{floor}"/>'


def _curve(curve: Curve, axes: _Axes, colour: int) -> str:
    found = [(point.extent_bytes, alpha_of(point)) for point in curve.points]
    around = [(extent, a.high) for extent, a in found] + [(e, a.low) for e, a in found[::-1]]
    title = escape(condition_text(curve.condition))
    return (
        f'<polygon class="band" fill="var(--c{colour})" points="{axes.line(around)}"/>'
        f'<polyline class="curve" stroke="var(--c{colour})" '
        f'points="{axes.line([(e, a.mean) for e, a in found])}"><title>{title}</title></polyline>'
    )


def _descriptors(described: Curve, axes: _Axes, racm: Racm) -> str:
    """What the engines' descriptors allow, over the sequential bandwidth as described."""
    base = interval(described.sequential_gbps).mean
    steps = range(round(8 * (axes.last - axes.first)) + 1)
    sizes = (round(2 ** (axes.first + step / 8)) for step in steps)
    allowed = [(size, descriptor_gbps(racm.device, size) / base) for size in sizes]
    shown = axes.line([place for place in allowed if place[1] <= axes.top])
    return f'<polyline class="limit" points="{shown}"/>'


def _table(curves: list[Curve]) -> str:
    described = curves[0].condition
    heads = "".join(f"<th>{escape(difference_text(c.condition, described))}</th>" for c in curves)
    rows = []
    for first, *points in zip(curves[0].points, *(c.points for c in curves), strict=True):
        cells = "".join(
            f'<td title="{interval(p.gbps).mean:,.1f} GB/s, {p.row_hit_rate:.0%} row hits">'
            f"{alpha_of(p).mean:.3f} ± {alpha_of(p).half:.3f}</td>"
            for p in points
        )
        rows.append(f"<tr><td>{size_text(first.extent_bytes)}</td>{cells}</tr>")
    base = "".join(f"<td>{interval(c.sequential_gbps).mean:,.1f}</td>" for c in curves)
    rows.append(f"<tr><td>sequential GB/s</td>{base}</tr>")
    return (
        '<div class="wide" tabindex="0"><table>'
        f"<tr><th>extent</th>{heads}</tr>{''.join(rows)}</table></div>"
    )


def _plausible(racm: Racm) -> Iterator[str]:
    """alpha of the plausible variants, and why each is plausible."""
    if not racm.plausible:
        return
    grid = plausible_grid(racm)
    reasons = {name: variant.why for name, variant in racm.device.plausible.items()}
    yield f'<h2>Plausible variants</h2><p class="dim">{escape(grid.title)}.</p>'
    heads = "".join(f"<th>{escape(head)}</th>" for head in [*grid.columns, "why"])
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in [*row, reasons.get(row[0], "")])
        + "</tr>"
        for row in grid.rows
    )  # fmt: skip
    yield f'<div class="wide" tabindex="0"><table><tr>{heads}</tr>{rows}</table></div>'


def _origin(racm: Racm) -> Iterator[str]:
    assumed = racm.device.assumed
    yield f"<h2>Assumed numbers: {len(assumed)}</h2>"
    listed = "".join(
        f"<li><code>{escape(key)}</code> = {escape(value)}</li>" for key, value in assumed.items()
    )
    yield f'<ul class="assumed">{listed}</ul>'
    yield (
        f'<p class="dim">bankwise {escape(version())}; descriptions (SHA-256) '
        f"{racm.device.digest[:12]}.</p>"
    )


def _prose(text: str) -> str:
    """Text for HTML; a number keeps its percent sign at the end of a line."""
    return escape(text).replace(" %", "&nbsp;%")
