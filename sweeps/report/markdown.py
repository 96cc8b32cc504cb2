"""Sections as Markdown: a chart is its table, thinned where it is long."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from sweeps.sections.chart import Chart, cell
from sweeps.sections.section import Block, Grid, Listing, Say, Section, fitted, sides

_TAG = re.compile(r"<(?=[A-Za-z/!?])")
"""What a name could begin HTML with."""
_ROWS = 24
"""Rows of a chart's table at most; the page's CSV and the JSON have them all."""


def markdown(sections: list[Section]) -> str:
    """One document."""
    lines = [line for section in sections for line in _section(section, 1)]
    return _TAG.sub("&lt;", "\n".join(lines)) + "\n"


def _section(section: Section, level: int) -> Iterator[str]:
    if section.title:
        yield f"{'#' * min(level, 6)} {section.title}\n"
    for block in fitted(section.blocks):
        yield from _block(block, level + 1)


def _block(block: Block, level: int) -> Iterator[str]:
    match block:
        case Say():
            yield (
                {"lead": "- ", "verdict": "- ", "problem": "> "}.get(block.kind, "")
                + block.text
                + "\n"
            )
        case Grid():
            if block.title:
                yield f"{block.title}\n"
            yield from _table(block.columns, block.rows, block.sides)
        case Listing():
            if block.title:
                yield f"**{block.title}**\n"
            yield from (f"- `{key}`: {value}" for key, value in block.items.items())
            yield ""
        case Section():
            yield from _section(block, level)
        case _:
            yield from _chart(block)


def _chart(chart: Chart) -> Iterator[str]:
    rows = chart.rows()
    every = -(-len(rows) // _ROWS) if rows else 1
    shown = rows[::every]
    thinned = f" ({len(shown)} of {len(rows)} rows)" if every > 1 else ""
    yield f"**{chart.title}**{thinned}\n"
    cells = [[_rounded(value) for value in row] for row in shown]
    yield from _table(chart.columns(), cells, sides(chart.columns(), cells))
    if chart.note:
        yield f"{chart.note}\n"


def _rounded(value: Any) -> str:
    """A value of a chart with three significant digits, or all those before the point."""
    if not isinstance(value, float) or not value or not math.isfinite(value):
        return cell(value)
    text = f"{value:,.{max(2 - math.floor(math.log10(abs(value))), 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _table(columns: list[str], rows: list[list[str]], aligned: str) -> Iterator[str]:
    yield _line(columns)
    yield "|" + "".join("---|" if side == "<" else "---:|" for side in aligned)
    yield from (_line(row) for row in rows)
    yield ""


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in cells) + " |"
