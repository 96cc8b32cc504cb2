"""A heat map as the inside of an SVG picture."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from sweeps.report.chart import Heat

WIDTH = 1000
_LETTER, _HIGH, _HEAD = 7.5, 34, 44
_LINES = ("", ' stroke-dasharray="2 4"')
STYLE = """
.cell { fill: var(--s0); stroke: var(--back); stroke-width: 1 }
.heat text { font: 13px system-ui, sans-serif; fill: var(--ink) } .heat .end { text-anchor: end }
.heat .at { text-anchor: middle } .heat .top { font-size: 11px }
.heat .small { font-size: 9.5px } .heat .on { fill: var(--back) }
.part5 { fill: none; stroke: var(--s1); stroke-width: 3; stroke-linejoin: round }
"""


def height(chart: Heat) -> int:
    """Of its picture, `WIDTH` wide."""
    return _HEAD + _HIGH * len(chart.cells) + 8


def drawn(chart: Heat) -> str:
    """Cells from pale to full with their value and its ends in per cent, then the lines."""
    names = 16 + _LETTER * max(map(len, chart.cells))
    wide = (WIDTH - names - 10) / len(chart.columns_of)
    parts, left = (
        [f'<text class="end" x="{names - 8}" y="{_HEAD - 8}">{escape(chart.x)}</text>'],
        8,
    )
    for k, name in enumerate(chart.lines):
        parts.append(
            f'<path class="part5" d="M{left} 12h28"{_LINES[k]}/>'
            f'<text x="{left + 34}" y="16">{escape(name)}</text>'
        )
        left += 60 + 7 * len(name)
    for j, name in enumerate(chart.columns_of):
        at = names + wide * (j + 0.5)
        parts.append(f'<text class="at top" x="{at:.1f}" y="{_HEAD - 8}">{escape(name)}</text>')
    for i, (name, spots) in enumerate(chart.cells.items()):
        y = _HEAD + _HIGH * i
        parts.append(f'<text class="end" x="{names - 8}" y="{y + 21}">{escape(name)}</text>')
        for j, spot in enumerate(spots):
            x, on = names + wide * j, " on" * (spot.value > 0.6)
            mid = x + wide / 2
            ends = f"{100 * spot.low:.0f}–{100 * spot.high:.0f}" * (spot.low < spot.high)
            parts.append(
                f'<rect class="cell" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{_HIGH}"'
                f' fill-opacity="{spot.value:.2f}"/>'
                f'<text class="at{on}" x="{mid:.1f}" y="{y + 16}">{100 * spot.value:.0f}</text>'
                f'<text class="at small{on}" x="{mid:.1f}" y="{y + 29}">{ends}</text>'
            )
    for k, places in enumerate(chart.lines.values()):
        across = [names + wide * place for place in places]
        path = f"M{across[0]:.1f} {_HEAD}v{_HIGH}"
        path += "".join(f"h{b - a:.1f}v{_HIGH}" for a, b in pairwise(across))
        parts.append(f'<path class="part5" d="{path}"{_LINES[k]}/>')
    return f'<g class="heat">{"".join(parts)}</g>'
