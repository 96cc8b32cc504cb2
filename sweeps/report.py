"""A report: sentences, table, what is assumed, where it comes from; terminal and Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sweeps.figures import FIGURES
from sweeps.gap import CONTROL
from sweeps.page import page
from sweeps.screen import print_table
from sweeps.store import RunDirectory, write_atomically
from sweeps.table import HEADINGS, Row, Table, read_table
from sweeps.verdict import sentences

SIDES = "<" + ">" * sum(figure.terminal for figure in FIGURES) + "<"
"""How the terminal's columns are aligned: names and limits to the left."""


def report(directories: list[Path], html: Path | None = None) -> list[Path]:
    """Print the report of each run, and write `report.md` and `report.html` into its directory.

    With `html` one page for all goes there instead. Returns what was written.
    Raises DescriptionError.
    """
    tables = [read_table(RunDirectory(directory)) for directory in directories]
    written = []
    for directory, table in zip(directories, tables, strict=True):
        show(table)
        write_atomically(directory / "report.md", markdown(table))
        written.append(directory / "report.md")
        if html is None:
            write_atomically(directory / "report.html", page([table]))
            written.append(directory / "report.html")
    if html is not None:
        html.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(html, page(tables))
        written.append(html)
    return written


def show(table: Table) -> None:
    """Print the table of each group, then the sentences."""
    print(f"{table.name}: {table.question or table.config['summary']}")
    print(table.state)
    for group in table.groups:
        print(f"\n{group.title}")
        print_table(["", *_narrow(HEADINGS)], [_line(row) for row in group.ordered()], SIDES)
    print()
    for sentence in sentences(table):
        print(sentence)
    assumed = sum(len(items) for items in table.assumed.values())
    print(f"\n{table.note}\n{assumed} numbers behind this are assumed; the report lists them.")


def _line(row: Row) -> list[str]:
    """A row for the terminal: a control under its competitor, the main limit only."""
    title = f"  {row.control}" if row.control else row.name
    return [title, *_narrow(row.cells(1))]


def _narrow(texts: list[str]) -> list[str]:
    """Of headings or cells, those of the terminal's table."""
    shown = [text for text, figure in zip(texts, FIGURES, strict=False) if figure.terminal]
    return [*shown, *texts[len(FIGURES) :]]


def markdown(table: Table) -> str:
    """The report as Markdown."""
    return "\n".join(_markdown(table)) + "\n"


def _markdown(table: Table) -> Iterator[str]:
    yield f"# {table.name}\n"
    yield f"{table.question or table.config['summary']}\n\n{table.state}. {table.note}\n"
    yield from (f"- {sentence}" for sentence in sentences(table))
    for group in table.groups:
        columns = [table.config["compare"].split(".")[-1], *HEADINGS]
        yield f"\n## {group.title}\n"
        yield "| " + " | ".join(columns) + " |"
        yield "|---" + "|---:" * (len(columns) - 2) + "|---|"
        for row in group.ordered():
            yield "| " + " | ".join([row.title, *row.cells()]) + " |"
    if any(row.control == CONTROL for group in table.groups for row in group.rows):
        yield f"\n`({CONTROL})`: the same point with memory of a fixed efficiency and no banks."
    yield "\n## Assumed numbers\n"
    for title, items in table.assumed.items():
        yield f"- {title}: " + ", ".join(f"`{path}` = {value}" for path, value in items.items())
    yield "\n## Where this comes from\n"
    yield from (f"- {key}: {value}" for key, value in table.origin().items())
