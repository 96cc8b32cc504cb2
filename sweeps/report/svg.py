"""A chart of changes, lines, regions or cells as one SVG file, for pages that are Markdown."""

from __future__ import annotations

from html import escape

from sweeps.report import heat
from sweeps.report.chart import Heat, Lines, Regions, Tornado
from sweeps.report.drawing import SIDE, shade_keys, shaded, stretches, stroke, swings, traces
from sweeps.report.scale import scale

_WIDTH, _NAMES, _VALUES, _LINE = 1000, 440, 80, 22
_STYLE = """svg { background: #fff } text { font: 13px system-ui, sans-serif; fill: #1c2024 }
.title { font-weight: 600 } .end { text-anchor: end } .dim { fill: #565f6a }
.bar { fill: #0063a6 } .bar.loss { fill: #c04a00 } .bar.control { fill: #aebccd }
.zero { stroke: #565f6a } svg svg { overflow: visible }
.whisker { stroke: #1c2024; stroke-width: 1.2 }"""


_LEFT, _TOP, _HIGH = 60, 60, 320
"""Of a chart of lines: where its area begins, and how high it is."""
_LINES_STYLE = """
svg { --s0: #0063a6; --s1: #c04a00; --s2: #007a57; --s3: #8a3f8a }
.middle { text-anchor: middle } .grid { stroke: #dfe3e8 } .curve { fill: none; stroke-width: 2 }
path, line { vector-effect: non-scaling-stroke }"""


def svg(chart: Tornado | Lines | Regions | Heat) -> str:
    """The file's text."""
    if isinstance(chart, Heat):
        style = f"svg {{ --s0: #0063a6; --s1: #c04a00; --ink: #1c2024; --back: #fff }}{heat.STYLE}"
        return _file([heat.drawn(chart)], heat.height(chart), _STYLE + style)
    if isinstance(chart, Regions):
        return _file(_regions(chart), _LINE * (len(chart.cases) + 6), _STYLE + _LINES_STYLE)
    if isinstance(chart, Lines):
        return _file(_lines(chart), _TOP + _HIGH + 50, _STYLE + _LINES_STYLE)
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
    return _file(lines, height, _STYLE)


def _regions(chart: Regions) -> list[str]:
    """A key, a line of it an owner, then a line a case and the axis."""
    lines = [f'<text class="title" x="8" y="18">{escape(chart.title)}</text>']
    first, row, left = -1, 0, 0
    for text, owner, shade in shade_keys(chart):
        if owner != first:
            first, row, left = owner, row + 1, 8
        y = _LINE * row + 8
        lines += [
            f'<svg x="{left}" y="{y}" width="30" height="14">{shaded(0, 100, owner, shade)}</svg>',
            f'<text x="{left + 36}" y="{y + 12}">{escape(text)}</text>',
        ]
        left += 36 + 8 * len(text) + 24
    wide = _WIDTH - _NAMES - _VALUES - 20
    for i, (name, text, drawn) in enumerate(stretches(chart), row + 1):
        y = _LINE * i + 12
        lines += [
            f'<text class="end" x="{_NAMES}" y="{y + 14}">{escape(name)}</text>',
            f'<svg x="{_NAMES + 10}" y="{y}" width="{wide}" height="18">{drawn}</svg>',
            f'<text class="end" x="{_WIDTH - 8}" y="{y + 14}">{escape(text)}</text>',
        ]
    return lines


def _lines(chart: Lines) -> list[str]:
    """A key on top, then the area with its ticks."""
    x = scale(chart.x, (value for one in chart.series for value in one.x))
    y = scale(chart.y, (value for one in chart.series for value in one.y))
    wide, foot = _WIDTH - _LEFT - 20, _TOP + _HIGH
    lines = [f'<text class="title" x="8" y="18">{escape(chart.title)}</text>']
    for i, one in enumerate(chart.series):
        left = _LEFT + i * wide // len(chart.series)
        lines += [
            f'<line x1="{left}" x2="{left + 30}" y1="38" y2="38" stroke-width="2" {stroke(i)}/>',
            f'<text x="{left + 36}" y="42">{escape(one.name)}</text>',
        ]
    for value, text in y.ticks:
        at = foot - _HIGH * y.share(value)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_LEFT + wide}" y1="{at}" y2="{at}"/>')
        lines.append(f'<text class="end dim" x="{_LEFT - 6}" y="{at + 4}">{escape(text)}</text>')
    for value, text in x.ticks:
        at = _LEFT + wide * x.share(value)
        lines.append(f'<text class="middle dim" x="{at}" y="{foot + 18}">{escape(text)}</text>')
    return [
        *lines,
        f'<text class="end dim" x="{_LEFT + wide}" y="{foot + 40}">{escape(chart.x.label)}</text>',
        f'<svg x="{_LEFT}" y="{_TOP}" width="{wide}" height="{_HIGH}" viewBox="0 0 {SIDE} {SIDE}"'
        f' preserveAspectRatio="none">{traces(chart, x, y)}</svg>',
    ]


def _file(lines: list[str], height: int, style: str) -> str:
    body = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}"'
        f' height="{height}">\n<style>{style}</style>\n{body}\n</svg>\n'
    )
