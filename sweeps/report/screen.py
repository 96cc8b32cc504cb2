"""Results of single commands on the terminal: JSON, or a table."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from hwmodel.description.yaml_writer import plain
from sweeps.sections.section import Grid, Say, Section, sides


def print_json(value: Any) -> None:
    """Print `value` as JSON."""
    print(json.dumps(plain(value), indent=2))


def print_lines(values: Iterator[Any]) -> None:
    """Print each of `values` as a line of JSON, as it comes."""
    for value in values:
        print(json.dumps(value), flush=True)


def print_table(columns: list[str], rows: list[list[str]], aligned: str = "") -> None:
    """Print a table: by rich on a terminal, else plain; `aligned` as for `table_text`."""
    if not sys.stdout.isatty():
        print(table_text(columns, rows, aligned))
        return
    from rich.console import Console  # heavy
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, side in zip(columns, aligned or sides(columns, rows), strict=True):
        table.add_column(heading.replace(" ", "\n", 1), justify="left" if side == "<" else "right")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False, emoji=False).print(table)


def print_section(section: Section) -> None:
    """Print the sentences and tables that a page shows unfolded, its findings last; a table that is
    too wide for the terminal in several, each with the first column."""
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() else 10**6
    blocks = [*_spoken(section)]
    last = [block for block in blocks if isinstance(block, Say) and block.kind == "verdict"]
    shown = [*(block for block in blocks if block not in last), *last]
    for i, block in enumerate(shown):
        print("\n" * bool(i), end="")
        if isinstance(block, Say):
            print("\n".join(textwrap.wrap(block.text, min(wide, 100))))
            continue
        print(f"{block.title}\n" * bool(block.title), end="")
        for columns in _bands(block, wide):
            print("\n" * (columns[1:2] != [1]), end="")
            _print_grid(block, columns)


def _spoken(section: Section) -> Iterator[Say | Grid]:
    """Its sentences and tables, with those of the sections in it that are not folded."""
    for block in section.blocks:
        if isinstance(block, Section) and not block.folded:
            yield from _spoken(block)
        elif isinstance(block, Say) or (isinstance(block, Grid) and block.terminal):
            yield block


def print_report(section: Section) -> None:
    """Print a report: the tables that a page shows unfolded, as far as a terminal has room for
    their columns, and then its sentences, so that the answer stands last."""
    says = [block for block in section.walk() if isinstance(block, Say)]

    def said(*kinds: str) -> Iterator[str]:
        return (say.text for say in says if say.kind in kinds)

    print(f"{section.title}: {next(said('question'), '')}")
    for text in [*said("state"), *(f"problem: {text}" for text in said("problem"))]:
        print(text)
    for title, grid in _unfolded(section, ""):
        print(f"\n{title}" if title else "")
        first = grid.parts[0]
        _print_grid(first, [*range(len(first.columns))])
    for texts in (said("lead", "verdict"), said("foot")):
        if lines := list(texts):
            print("", *lines, sep="\n")


def _print_grid(grid: Grid, shown: list[int]) -> None:
    """Print these columns of it."""
    heads, *rows = ([row[i] for i in shown] for row in (grid.columns, *grid.rows))
    print_table(heads, rows, "".join(grid.sides[i] for i in shown))


def _unfolded(section: Section, title: str) -> Iterator[tuple[str, Grid]]:
    """Its tables, each with its own title or that of the section that it stands in."""
    for block in section.blocks:
        if isinstance(block, Section) and not block.folded:
            yield from _unfolded(block, block.title)
        elif isinstance(block, Grid) and block.terminal:
            yield block.title or title, block


def _bands(grid: Grid, wide: int) -> Iterator[list[int]]:
    """Columns that stand side by side on so many letters, the first in each."""
    widths = [
        max(map(len, (*heading.split(" ", 1), *(row[i] for row in grid.rows))))
        for i, heading in enumerate(grid.columns)
    ]
    band, used = [0], widths[0]
    for i, width in enumerate(widths[1:], 1):
        if used + width + 2 > wide and len(band) > 1:
            yield band
            band, used = [0], widths[0]
        band.append(i)
        used += width + 2
    yield band


def table_text(columns: list[str], rows: list[list[str]], aligned: str = "") -> str:
    """A plain table; `aligned`: `<` or `>` for each column, by its cells where it is empty.

    Headings stand on two lines where they have two words or more.
    """
    lines = []
    parts = [heading.split(" ", 1) for heading in columns]
    heads = [[part[0] for part in parts], [part[1] if len(part) > 1 else "" for part in parts]]
    heads = [line for line in heads if any(line)]
    widths = [max(map(len, column)) for column in zip(*heads, *rows, strict=True)]
    aligned = aligned or sides(columns, rows)
    for cells in (*heads, ["-" * width for width in widths], *rows):
        parts_of = zip(cells, aligned, widths, strict=True)
        lines.append("  ".join(f"{cell:{side}{width}}" for cell, side, width in parts_of).rstrip())
    return "\n".join(lines)
