"""Reports of runs and of what differs between two: on the terminal, as a page, Markdown or JSON."""

from __future__ import annotations

import sys
from pathlib import Path

from hwmodel.description.description import DescriptionError
from sweeps.analyse.figures import REFERENCE
from sweeps.analyse.objective import Objective, figures_of
from sweeps.analyse.table import Row, Table, headings
from sweeps.report import comparison_page as comparison
from sweeps.report.contents import contents, record
from sweeps.report.markdown import markdown
from sweeps.report.page import page
from sweeps.report.presenters import presenter_of, read_table, sentences
from sweeps.report.screen import print_json, print_table
from sweeps.report.section import Section, as_json
from sweeps.run.store import RunDirectory, last_run, write_atomically


def report(
    directories: list[Path],
    html: Path | None = None,
    markdown_file: Path | None = None,
    json: bool = False,
) -> list[Path]:
    """Print the report of each run, and write `report.md` and `report.html` into its directory.

    With `html` (or `markdown_file`) one page (or text) for all goes there instead, with what
    differs between the first run and each other one; with `json` all is printed as JSON, and only
    what is named is written. A run of which nothing can be shown is passed over with a message,
    unless all are such. Returns what was written. Raises DescriptionError.
    """
    tables = readable(directories)
    sections = [contents(table) for table in tables]
    against = [comparison.compared(tables[0], other) for other in tables[1:]]
    everything = [*map(comparison.section, against), *sections]
    if json:
        runs = [
            {**record(table), **as_json(section)}
            for table, section in zip(tables, sections, strict=True)
        ]
        print_json({"runs": runs, "comparisons": [comparison.record(each) for each in against]})
    else:
        for table in tables:
            show(table)
        for each in against:
            show_comparison(each)
    written = []
    if not json:
        for table, section in zip(tables, sections, strict=True):
            page_file = None if html else table.path / "report.html"
            text_file = None if markdown_file else table.path / "report.md"
            written += write([section], page_file, text_file)
    return [*written, *write(everything, html, markdown_file)]


def compare(
    first: Path, second: Path, html: Path | None, markdown_file: Path | None, json: bool
) -> list[Path]:
    """Print what differs between two runs, and write it where asked. Raises DescriptionError."""
    found = comparison.compare(last_run(first), last_run(second))
    if json:
        print_json(comparison.record(found))
    else:
        show_comparison(found)
    return write([comparison.section(found)], html, markdown_file)


def write(sections: list[Section], html: Path | None, markdown_file: Path | None) -> list[Path]:
    """Write the page and the Markdown that are wanted; returns them."""
    wanted = ((html, page), (markdown_file, markdown))
    written = []
    for file, form in wanted:
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, form(sections))
            written.append(file)
    return written


def readable(directories: list[Path]) -> list[Table]:
    """The runs of which something can be shown; says which others are left out. Raises
    DescriptionError where all are."""
    found, errors = [], []
    for directory in map(last_run, directories):
        try:
            found.append(read_table(RunDirectory(directory)))
        except DescriptionError as error:
            errors.append(error)
    if errors and not found:
        raise errors[0]
    for why in errors:
        print(f"left out: {why}", file=sys.stderr)
    return found


def show(table: Table) -> None:
    """Print the table of each group, then the sentences."""
    print(f"{table.name}: {table.question or table.config.get('summary', '')}")
    print(table.state)
    for problem in table.problems:
        print(f"problem: {problem}")
    if found := presenter_of(table).grids(table):
        for grid in found:
            print(f"\n{grid.title}" if grid.title else "")
            print_table(grid.columns, grid.rows, "<<>")
    else:
        _show_groups(table)
    print()
    for sentence in sentences(table):
        print(sentence)
    assumed = sum(len(items) for items in table.assumed.values())
    print(f"\n{table.note}\n{assumed} numbers behind this are assumed; the report lists them.")


def _show_groups(table: Table) -> None:
    for group in table.groups:
        print(f"\n{group.title}")
        lines = [_line(row, group.objective) for row in group.ordered()]
        heads = ["", *_narrow(headings(group.objective), group.objective)]
        sides = "<" + ">" * (len(heads) - 2) + "<"  # names and limits to the left
        shown = [i for i in range(len(heads)) if i == 0 or any(line[i] != "–" for line in lines)]
        rows = [[line[i] for i in shown] for line in lines]
        print_table([heads[i] for i in shown], rows, "".join(sides[i] for i in shown))


def show_comparison(found: comparison.Comparison) -> None:
    """Print what differs metric by metric, then in sentences."""
    a, b = found.names
    print(f"{a} against {b}\n")
    for name, table in zip(found.names, (found.a, found.b), strict=True):
        for problem in table.problems:
            print(f"problem: {name}: {problem}")
    for pair in found.pairs:
        moved = [c for c in pair.changes if c.certain != "the same"]
        if moved:
            rows = [
                [
                    c.figure.heading, c.figure.text(c.ours), c.figure.text(c.theirs),
                    comparison.change_text(c), c.certain,
                ]
                for c in moved
            ]  # fmt: skip
            print(pair.title)
            print_table(["", "A", "B", "change", "certain"], rows, "<>>><")
            print()
    for name, titles in found.alone.items():
        if titles:
            print(f"only {name} has: {'; '.join(titles)}\n")
    for sentence in comparison.sentences(found):
        print(sentence)


def _line(row: Row, objective: Objective) -> list[str]:
    """A row for the terminal: a control under its competitor, the main limit only."""
    title = (
        f"  {row.name if row.control == REFERENCE else row.control}" if row.control else row.name
    )
    return [title, *_narrow(row.cells(objective, 1), objective)]


def _narrow(texts: list[str], objective: Objective) -> list[str]:
    """Of headings or cells, those of the terminal's table."""
    figures = figures_of(objective)
    shown = [text for text, figure in zip(texts, figures, strict=False) if figure.terminal]
    return [*shown, *texts[len(figures) :]]
