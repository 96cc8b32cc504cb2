"""One page in which a reader chooses among what runs have varied: a chart whose parameters are the
axes, and each place that was simulated. Nothing is said of what lies between, or of who is best."""

from __future__ import annotations

from typing import Any

from sweeps.analyse.label import named
from sweeps.analyse.table import Row
from sweeps.report.contents import Report
from sweeps.report.overview import compared
from sweeps.sections.chart import Axis, Places, PlaceValue
from sweeps.sections.formats import between
from sweeps.sections.section import Block, Grid, Say, Section


def explored(report: Report) -> Section:
    """A run to choose from: its question, what it found, the chart, every place as a table."""
    table = report.table
    blocks: list[Block] = [
        Say(table.question or str(table.config.get("summary", "")), "question"),
        Say(report.sentences[0], "lead"),
    ]
    found = _places(report)
    if found is None:
        return Section(table.name, [*blocks, Say("Nothing in it is compared by one number.")])
    objective = table.groups[0].objective
    rows = [[*each.at, each.name, between(each.value, lambda value: f"{value:,.4g}")]
            for each in found.values]  # fmt: skip
    grid = Grid("", [*found.axes, table.compared, objective.words], rows)
    every = Section("All that was simulated", [grid], folded=True)
    return Section(table.name, [*blocks, found, every], compared=compared(table))


def _places(report: Report) -> Places | None:
    """Every place that has a value of the objective."""
    table = report.table
    paths = list(dict.fromkeys(path for group in table.groups for path in group.others))
    rows = [(row, row.interval(group.objective.metric))
            for group in table.groups for row in group.main()]  # fmt: skip
    if not any(value is not None for _, value in rows):
        return None
    objective = table.groups[0].objective
    values = [
        PlaceValue(row.name, tuple(_text(path, row) for path in paths),
                   value.mapped(lambda one: objective.scale * one).within(0.0))
        for row, value in rows if value is not None
    ]  # fmt: skip
    order = {path: list(dict.fromkeys(_text(path, row) for row, _ in rows)) for path in paths}
    varied = [i for i, path in enumerate(paths) if len(order[path]) > 1]
    kept = [each._replace(at=tuple(each.at[i] for i in varied)) for each in values]
    axes = {paths[i]: order[paths[i]] for i in varied}
    note = "Lines join simulated points: what lies between was not simulated. Whiskers: 95 %."
    return Places(objective.words, Axis(objective.words), axes, kept, note, figure="places")


def _text(path: str, row: Row) -> str:
    """A value of an axis as it is written."""
    given: Any = row.overrides.get(path)
    return "as described" if given is None else str(named(path, given))
