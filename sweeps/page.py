"""The report as one HTML page that needs no network: sentences, bars, tables, sources."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sweeps import chart
from sweeps.gap import CONTROL
from sweeps.table import HEADINGS, Group, Table
from sweeps.verdict import sentences

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #5d6672; --line: #d5d9de; --back: #fff;
        --bar: #3a6ea5; --control: #b9c6d6; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8ea; --dim: #9aa3ad; --line: #3a4048; --back: #15181c;
          --bar: #4f86bf; --control: #44505e; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
       max-width: 76rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; margin-bottom: 0 } h2 { font-size: 1.2rem; margin: 2rem 0 0 }
h3 { font-size: .9rem; font-weight: 600; margin: .8rem 0 .2rem }
.question { font-size: 1.1rem; margin-top: .2rem }
.sentence { margin: .6rem 0; padding-left: .8rem; border-left: 3px solid var(--bar);
            max-width: 60rem }
.dim { color: var(--dim); font-size: .85rem; margin: .5rem 0 }
.wide { overflow-x: auto }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr));
        gap: 0 2.5rem }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { padding: .25rem .5rem; border-bottom: 1px solid var(--line); text-align: right;
         white-space: nowrap }
th { vertical-align: bottom; line-height: 1.2; white-space: normal; overflow-wrap: normal }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0;
                                 background: var(--back) }
th:last-child, td:last-child, .origin td { text-align: left }
td:last-child { white-space: normal; min-width: 15rem }
tr.control { color: var(--dim) } tr.control td:first-child { padding-left: 1.4rem }
.origin td { white-space: normal; vertical-align: top; position: static !important }
.origin td:first-child { white-space: nowrap; padding-left: 0 }
.assumed { columns: 20rem; margin: .3rem 0 1rem; padding: 0; list-style: none; font-size: .85rem }
code { font-size: .95em }
"""


def page(tables: list[Table]) -> str:
    """One self-contained page for one or more runs."""
    title = escape(", ".join(table.name for table in tables))
    body = "\n".join(line for table in tables for line in _run(table))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} - bankwise</title><style>{_STYLE}{chart.STYLE}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )


def _run(table: Table) -> Iterator[str]:
    yield f"<h1>{escape(table.name)}</h1>"
    yield f'<p class="question">{escape(table.question or table.config["summary"])}</p>'
    for text in sentences(table):
        title, _, rest = text.partition(": ")
        yield f'<p class="sentence"><b>{escape(title)}</b>: {_prose(rest)}</p>'
    yield f'<p class="dim">{escape(table.state)}.</p>'
    for group in table.groups:
        yield f"<h2>{escape(group.title)}</h2>"
        bars = chart.throughput_bars(group.ordered()), chart.phase_bars(group.main())
        yield f'<div class="pair"><div>{bars[0]}</div><div>{bars[1]}</div></div>'
        yield _grid(group, table.config["compare"].split(".")[-1])
        yield f'<p class="dim">{_prose(table.note)}{_control_note(table)}</p>'
    yield from _assumed(table)
    yield '<h2>Where this comes from</h2><table class="origin">'
    for key, value in table.origin().items():
        yield f"<tr><td>{escape(key)}</td><td>{escape(str(value))}</td></tr>"
    yield "</table>"


def _prose(text: str) -> str:
    """Text for HTML; a number keeps its percent sign at the end of a line."""
    return escape(text).replace(" %", "&nbsp;%")


def _control_note(table: Table) -> str:
    if all(row.control != CONTROL for group in table.groups for row in group.rows):
        return ""
    return f" {CONTROL}: the same point with memory of a fixed efficiency and no banks."


def _grid(group: Group, compared: str) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in [compared, *HEADINGS])
    rows = []
    for row in group.ordered():
        kind = ' class="control"' if row.control else ""
        texts = [row.control or row.name, *row.cells(2)]
        body = "".join(f"<td>{escape(text)}</td>" for text in texts)
        rows.append(f"<tr{kind}>{body}</tr>")
    return f'<div class="wide" tabindex="0"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _assumed(table: Table) -> Iterator[str]:
    count = sum(len(items) for items in table.assumed.values())
    yield f"<h2>Assumed numbers: {count}</h2>"
    for name, items in table.assumed.items():
        listed = "".join(
            f"<li><code>{escape(key)}</code> = {escape(str(value))}</li>"
            for key, value in items.items()
        )
        yield f'<h3>{escape(name)}</h3><ul class="assumed">{listed}</ul>'
