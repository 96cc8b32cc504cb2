"""A chart of relative changes as one SVG file, for pages that are Markdown."""

from __future__ import annotations

from html import escape

from sweeps.render.chart import Tornado
from sweeps.render.drawing import swings

_WIDTH, _NAMES, _VALUES, _LINE = 1000, 440, 80, 22
_STYLE = """svg { background: #fff } text { font: 13px system-ui, sans-serif; fill: #1c2024 }
.title { font-weight: 600 } .end { text-anchor: end } .dim { fill: #565f6a }
.bar { fill: #0063a6 } .bar.loss { fill: #c04a00 } .bar.control { fill: #aebccd }
.zero { stroke: #565f6a } svg svg { overflow: visible }
.whisker { stroke: #1c2024; stroke-width: 1.2 }"""


def svg(chart: Tornado) -> str:
    """The file's text."""
    height = _LINE * (len(chart.bars) + 2)
    wide = _WIDTH - _NAMES - _VALUES - 20
    lines = [f'<text class="title" x="8" y="18">{escape(chart.title)}</text>']
    for i, (bar, text, drawn) in enumerate(swings(chart), 1):
        kind = " dim" if bar.dim else ""
        y = _LINE * i + 6
        lines += [
            f'<text class="end{kind}" x="{_NAMES}" y="{y + 14}">{escape(bar.name)}</text>',
            f'<svg x="{_NAMES + 10}" y="{y}" width="{wide}" height="18">{drawn}</svg>',
            f'<text class="end{kind}" x="{_WIDTH - 8}" y="{y + 14}">{escape(text)}</text>',
        ]
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
        f' height="{height}">\n<style>{_STYLE}</style>\n{body}\n</svg>\n'
    )
