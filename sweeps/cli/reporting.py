"""Reports of runs: on the terminal, as a page, Markdown or JSON."""

from __future__ import annotations

import sys
from pathlib import Path

from hwmodel.description.description import DescriptionError
from sweeps.report import comparison_page as comparison
from sweeps.report.contents import Report, read_report
from sweeps.report.screen import print_json, print_report
from sweeps.report.shown import write_reports
from sweeps.run.findings import keep
from sweeps.run.store import last_run


def report(
    directories: list[Path],
    html: Path | None = None,
    markdown_file: Path | None = None,
    json: bool = False,
) -> list[Path]:
    """Print the report of each run, and write `report.md`, `report.html` and `findings.json` into
    its directory.

    With `html` (or `markdown_file`) one page (or text) for all goes there instead, with what
    differs between the first run and each other one; with `json` all is printed as JSON, and only
    what is named is written. A run of which nothing can be shown is passed over with a message,
    unless all are such. Returns what was written. Raises DescriptionError.
    """
    reports = readable(directories)
    first, *others = [each.findings for each in reports]
    against = [comparison.compare(first, other) for other in others]
    sections = [comparison.section(each) for each in against]
    if json:
        compared = [comparison.record(each) for each in against]
        print_json({"runs": [each.record() for each in reports], "comparisons": compared})
    else:
        for section in [*(each.section for each in reports), *sections]:
            print_report(section)
    written = []
    for each in () if json else reports:
        keep(each.findings)
        page_file = None if html else each.table.path / "report.html"
        text_file = None if markdown_file else each.table.path / "report.md"
        written += write_reports([each.section], page_file, text_file)
    everything = [*sections, *(each.section for each in reports)]
    return [*written, *write_reports(everything, html, markdown_file)]


def readable(directories: list[Path]) -> list[Report]:
    """The runs of which something can be shown; says which others are left out. Raises
    DescriptionError where all are."""
    found, errors = [], []
    for directory in map(last_run, directories):
        try:
            found.append(read_report(directory))
        except DescriptionError as error:
            errors.append(error)
    if errors and not found:
        raise errors[0]
    for why in errors:
        print(f"left out: {why}", file=sys.stderr)
    return found
