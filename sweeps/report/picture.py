"""The charts of one name in a run: drawn in a notebook or a page, or read as rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hwmodel.description.description import DescriptionError, nearest
from sweeps.report.contents import Report
from sweeps.report.drawing import FORMS
from sweeps.report.shown import Shown, save
from sweeps.run.store import to_csv, write_atomically
from sweeps.sections.chart import Chart, file_name
from sweeps.sections.section import Section, is_chart


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
            return save(self.sections(), path)
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


def pictures(report: Report) -> dict[str, Picture]:
    """Every picture of a report by its figure's name, or by its title in small letters and
    hyphens."""
    placed: dict[str, list[Placed]] = {}
    for title, chart in _drawn(report.section, report.section.title):
        name = chart.figure or file_name(chart.title)
        placed.setdefault(name, []).append(Placed(title, chart))
    names = report.section.compared
    return {name: Picture(name, charts, names) for name, charts in placed.items()}


def picture(report: Report, name: str) -> Picture:
    """One of them, or one chart by its whole title in small letters and hyphens. Raises
    DescriptionError with the nearest name."""
    found = pictures(report)
    for each in list(found.values()):
        for whose in each.charts:
            one = Picture(name, [whose], each.compared)
            found.setdefault(file_name(whose.chart.title), one)
    if name not in found:
        where = report.table.path
        raise DescriptionError(f"no figure {name!r} in {where}; {nearest(name, list(found))}")
    return found[name]


def _drawn(section: Section, title: str) -> Iterator[tuple[str, Chart]]:
    """Each chart with the title of the section that it stands in, or is left of."""
    for block in section.blocks:
        if isinstance(block, Section):
            yield from _drawn(block, title if block.rest else block.title or title)
        elif is_chart(block):
            yield title, block
