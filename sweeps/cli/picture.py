"""The charts of one name in a run: drawn in a notebook or a page, or read as rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError, nearest
from sweeps.analyse.table import Table
from sweeps.report.chart import Chart, file_name
from sweeps.report.contents import contents
from sweeps.report.drawing import FORMS
from sweeps.report.gallery import MAKERS
from sweeps.report.overview import compared
from sweeps.report.section import Grid, Listing, Say, Section
from sweeps.report.shown import Shown, save
from sweeps.run.store import to_csv, write_atomically

NAMES = {
    "library": r"^Who serves the most, by capacity", "map": r"^Who .+ on ",
    "atlas": r"^KV read, % of peak, by size", "waterfall": r": what each cause makes of it$",
    "break-even": r", at which .+ is ", "tornado": r", change in %$",
    "memory": r": memory over time", "front": r"^Pareto front", "history": r"^History",
    "importance": r"^Importance for", "against": r" against ",
}  # fmt: skip
"""Of charts that a report draws beside those of `gallery`, by their titles: short, and the same
whatever a run compares. Several of one name stand under one another."""


class Placed(NamedTuple):
    """A chart and whose it is."""

    group: str
    chart: Chart


class Picture(Shown):
    """Charts that the report draws: one a group, or several."""

    def __init__(self, name: str, charts: list[Placed], compared: tuple[str, ...] = ()) -> None:
        self.name = name
        self.charts = charts
        self.compared = compared

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Every value that is drawn, with its chart's headings as keys."""
        return [
            {"group": group, "chart": chart.title, **dict(zip(chart.columns(), row, strict=True))}
            for group, chart in self.charts
            for row in chart.rows()
        ]

    def to_csv(self) -> str:
        """The rows as CSV."""
        return to_csv(self.rows)

    def save(self, file: str | Path, dark: bool = False) -> Path:
        """Write it as a page (.html), as Markdown (.md), or as a picture (.svg, .png, .pdf) with
        its charts under one another; `dark`: the picture is light on dark. Raises DescriptionError
        for other names."""
        path = Path(file)
        if path.suffix not in FORMS:
            return save(self.sections(), path, FORMS)
        several = len(self.charts) > 1
        charts = [
            replace(chart, title=f"{group}: {chart.title}") if several else chart
            for group, chart in self.charts
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, FORMS[path.suffix](charts, self.compared, dark))
        return path

    def sections(self) -> list[Section]:
        groups = dict.fromkeys(group for group, _ in self.charts)
        return [
            Section(
                group,
                [chart for whose, chart in self.charts if whose == group],
                compared=self.compared,
            )
            for group in groups
        ]


def pictures(table: Table) -> dict[str, Picture]:
    """Every picture of a run by its name: those of `gallery` by who makes them, what else its
    report draws by `NAMES`, or by its title in small letters and hyphens."""
    placed: dict[str, list[Placed]] = {}
    known = set()
    for group in table.groups:
        for name, make in MAKERS.items():
            for chart in make(group):
                placed.setdefault(name, []).append(Placed(group.title, chart))
                known.add(chart.title)
    for section, chart in _drawn(contents(table)):
        if chart.title not in known:
            placed.setdefault(_short(chart.title), []).append(Placed(section, chart))
    names = compared(table)
    return {name: Picture(name, charts, names) for name, charts in placed.items()}


def picture(table: Table, name: str) -> Picture:
    """One of them, or one chart by its whole title in small letters and hyphens. Raises
    DescriptionError with the nearest name."""
    found = pictures(table)
    for each in list(found.values()):
        for whose in each.charts:
            one = Picture(name, [whose], each.compared)
            found.setdefault(file_name(whose.chart.title), one)
    if name not in found:
        raise DescriptionError(f"no figure {name!r} in {table.path}; {nearest(name, list(found))}")
    return found[name]


def _short(title: str) -> str:
    named = (name for name, pattern in NAMES.items() if re.search(pattern, title))
    return next(named, file_name(title))


def _drawn(section: Section) -> Iterator[tuple[str, Chart]]:
    """What stands beside the verdict comes again in its own section."""
    for block in section.blocks:
        if isinstance(block, Section):
            yield from () if block.beside else _drawn(block)
        elif not isinstance(block, (Say, Grid, Listing)):
            yield section.title, block
