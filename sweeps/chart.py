"""Bars of a report page: HTML text beside SVG bars in shares of the width, so that a phone fits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

from sweeps.figures import PHASES, THROUGHPUT
from sweeps.statistics import Interval
from sweeps.table import Row

STYLE = """
.bars { display: grid; grid-template-columns: auto 1fr auto; gap: .2rem .6rem; align-items: center;
        margin: .3rem 0 1rem; font-variant-numeric: tabular-nums; font-size: .9rem }
.bars svg { width: 100%; height: 18px; display: block; overflow: visible }
.bars svg text { fill: #fff; font: 11px system-ui, sans-serif; text-anchor: middle }
.bars .control { color: var(--dim) }
.whisker { stroke: var(--ink); stroke-width: 1.2 }
.key { display: inline-block; margin-right: 1rem; white-space: nowrap }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .35em;
         vertical-align: -.05em }
.weights { fill: #3a6ea5; background: #3a6ea5 } .attention { fill: #b8631a; background: #b8631a }
.prefill { fill: #4b7f52; background: #4b7f52 } .migration { fill: #a04668; background: #a04668 }
.overhead { fill: #7a808a; background: #7a808a }
"""
_WRITTEN = 0.08
"""A part of a bar has its number from this share of the width on."""


def throughput_bars(rows: list[Row]) -> str:
    """Output tokens/s from zero, with a whisker for the interval."""
    known = [(row, found) for row in rows if (found := row.interval(THROUGHPUT)) is not None]
    if not known:
        return ""
    top = max(i.high if math.isfinite(i.high) else i.mean for _, i in known) or 1.0
    lines = []
    for row, found in known:
        text = f"{found.mean:,.0f}" if found.mean >= 1000 else f"{found.mean:,.1f}"
        colour = "control" if row.control else "bar"
        lines.append((row, _bar(found, top, colour), text))
    caption = "Output tokens/s, with the interval of the mean"
    return f"<h3>{caption}</h3>{_grid(lines, caption)}"


def phase_bars(rows: list[Row]) -> str:
    """The phases' shares of step time, stacked."""
    lines = []
    for row in rows:
        shares = {name: row.mean(f"phase_share.{name}") or 0.0 for name in PHASES}
        if sum(shares.values()) > 0:
            lines.append((row, _stack(shares), ""))
    if not lines:
        return ""
    caption = "Share of step time, %"
    keys = "".join(f'<span class="key"><i class="{name}"></i>{name}</span>' for name in PHASES)
    return f"<h3>{caption}</h3><div>{keys}</div>{_grid(lines, caption)}"


def _grid(lines: Iterable[tuple[Row, str, str]], caption: str) -> str:
    parts = []
    for row, bar, text in lines:
        kind = ' class="control"' if row.control else ""
        name = escape(row.control or row.name)
        picture = f'<svg role="img" aria-label="{escape(row.title)}: {caption} {text}">{bar}</svg>'
        parts.append(f"<span{kind}>{name}</span>{picture}<span{kind}>{text}</span>")
    return f'<div class="bars">{"".join(parts)}</div>'


def _bar(found: Interval, top: float, colour: str) -> str:
    width = 100 * found.mean / top
    bar = f'<rect y="2" height="14" width="{width:.2f}%" fill="var(--{colour})"/>'
    if not math.isfinite(found.half):
        return bar
    low, high = (f"{100 * max(value, 0) / top:.2f}%" for value in (found.low, found.high))
    lines = [(low, high, 9, 9), (low, low, 5, 13), (high, high, 5, 13)]
    return bar + "".join(
        f'<line class="whisker" x1="{a}" x2="{b}" y1="{c}" y2="{d}"/>' for a, b, c, d in lines
    )


def _stack(shares: dict[str, float]) -> str:
    parts, start, total = [], 0.0, sum(shares.values())
    for name, value in shares.items():
        share = value / total
        box = f'x="{100 * start:.2f}%" width="{100 * share:.2f}%" y="1" height="16"'
        parts.append(f'<rect class="{name}" {box}><title>{name} {share:.1%}</title></rect>')
        if share >= _WRITTEN:
            at = f'x="{100 * (start + share / 2):.2f}%" y="13"'
            parts.append(f"<text {at}>{100 * share:.0f}</text>")
        start += share
    return "".join(parts)
