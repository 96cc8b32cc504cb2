"""The report as one HTML page that needs no network: sentences, bars, tables, sources."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from sweeps.figures import THROUGHPUT
from sweeps.statistics import Interval
from sweeps.table import HEADINGS, NOTE, Group, Row, Table
from sweeps.verdict import sentences

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #667; --line: #d5d9de; --back: #fff;
        --bar: #3a6ea5; --control: #b9c6d6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --dim: #99a; --line: #3a4048; --back: #15181c;
          --bar: #6aa0d8; --control: #44505e; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
       max-width: 78rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
.sentence { font-size: 1.05rem; margin: .4rem 0; padding-left: .8rem;
            border-left: 3px solid var(--bar) }
.dim { color: var(--dim) }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
         white-space: nowrap }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left }
tr.control { color: var(--dim) }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif }
code { font-size: .85em }
"""

_LEFT, _WIDTH, _BAR, _STEP = 170, 520, 16, 24


def page(tables: list[Table]) -> str:
    """One self-contained page for one or more runs."""
    title = escape(", ".join(table.name for table in tables))
    body = "\n".join(line for table in tables for line in _run(table))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} - bankwise</title><style>{_STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _run(table: Table) -> Iterator[str]:
    yield f"<h1>{escape(table.name)}</h1>"
    yield f"<p>{escape(table.question or table.config['summary'])}</p>"
    yield from (f'<p class="sentence">{escape(text)}</p>' for text in sentences(table))
    yield f'<p class="dim">{escape(table.state)}. {escape(NOTE)}</p>'
    for group in table.groups:
        yield f"<h2>{escape(group.title)}</h2>"
        yield _bars(group.ordered())
        yield _grid(group, table.config["compare"].split(".")[-1])
    yield "<h2>Assumed numbers</h2>"
    for name, items in table.assumed.items():
        listed = ", ".join(f"<code>{escape(k)}</code> = {escape(str(v))}" for k, v in items.items())
        yield f"<details><summary>{escape(name)}: {len(items)}</summary><p>{listed}</p></details>"
    yield "<h2>Where this comes from</h2><table>"
    for key, value in table.origin().items():
        yield f"<tr><td>{escape(key)}</td><td>{escape(str(value))}</td></tr>"
    yield "</table>"


def _grid(group: Group, compared: str) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in [compared, *HEADINGS])
    rows = []
    for row in group.ordered():
        kind = ' class="control"' if row.control else ""
        body = "".join(f"<td>{escape(text)}</td>" for text in [row.title, *row.cells()])
        rows.append(f"<tr{kind}>{body}</tr>")
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _bars(rows: list[Row]) -> str:
    """Throughput as bars from zero, with a whisker for the interval."""
    found = [(row, row.interval(THROUGHPUT)) for row in rows]
    known = [(row, interval) for row, interval in found if interval is not None]
    if not known:
        return ""
    top = max(i.high if math.isfinite(i.high) else i.mean for _, i in known) or 1.0
    parts = []
    for line, (row, interval) in enumerate(known):
        middle = line * _STEP + _STEP / 2
        at = f'y="{middle + 4}"'
        parts.append(f'<text x="{_LEFT - 8}" {at} text-anchor="end">{escape(row.title)}</text>')
        parts.append(_bar(interval, middle, _WIDTH / top, "control" if row.control else "bar"))
        end = (
            _LEFT
            + (interval.high if math.isfinite(interval.half) else interval.mean) * _WIDTH / top
        )
        parts.append(f'<text x="{end + 6:.1f}" {at}>{interval.mean:,.1f}</text>')
    size = f'width="{_LEFT + _WIDTH + 90}" height="{len(known) * _STEP}"'
    label = "output tokens/s, with 95 % intervals"
    picture = f'<svg {size} role="img" aria-label="{label}">{"".join(parts)}</svg>'
    return f'{picture}<p class="dim">{label}</p>'


def _bar(interval: Interval, middle: float, scale: float, colour: str) -> str:
    box = f'x="{_LEFT}" y="{middle - _BAR / 2}" height="{_BAR}" fill="var(--{colour})"'
    bar = f'<rect {box} width="{interval.mean * scale:.1f}"/>'
    if not math.isfinite(interval.half):
        return bar
    low, high = (_LEFT + max(value, 0) * scale for value in (interval.low, interval.high))
    ends = "".join(f"M{end:.1f} {middle - 4}v8" for end in (low, high))
    line = f"M{low:.1f} {middle}H{high:.1f}{ends}"
    return f'{bar}<path d="{line}" stroke="var(--ink)" fill="none"/>'
