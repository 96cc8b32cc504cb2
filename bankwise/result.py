"""A run or a study that has been run. What shows it is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwmodel.description.description import DescriptionError, nearest
from sweeps.analyse.figures import limit_texts
from sweeps.analyse.objective import SERVED, figures_of
from sweeps.analyse.rows import Record, is_number
from sweeps.analyse.table import Row
from sweeps.run.store import RunDirectory

if TYPE_CHECKING:
    from sweeps.report.contents import Report
    from sweeps.report.frame import Frame
    from sweeps.report.picture import Picture
    from sweeps.sections.section import Block, Section


class Result:
    """A run directory: `table()`, `figure(name)`, `sentences`, `report`. Read when first
    asked for.

    path: the directory; failures: why points are missing, a sentence each; at_fault: whether the
    input is to blame.
    """

    def __init__(self, path: Path, failures: Iterable[str] = (), at_fault: bool = False) -> None:
        self.path = path
        self.failures = list(failures)
        self.at_fault = at_fault

    @cached_property
    def report(self) -> Report:
        """The report of the run, and all that it found. Raises DescriptionError where nothing can
        be shown."""
        from sweeps.report.contents import read_report

        if self.failures and not RunDirectory(self.path).exists:
            raise DescriptionError(self.failures[0])
        return read_report(self.path)

    @property
    def records(self) -> list[Record]:
        """Every finished replication (of a study: trial) as `results.jsonl` has it."""
        return RunDirectory(self.path).records()

    @property
    def sentences(self) -> list[str]:
        """The verdicts, as `bankwise run` prints them."""
        return self.report.sentences

    def record(self) -> dict[str, Any]:
        """Verdicts and figures in JSON's types, as `bankwise report --json` has them."""
        return self.report.record()

    def table(self, metrics: Iterable[str] | None = None) -> Frame:
        """A row a point: the axes under their dotted paths, `control`, `replications`, and of each
        metric its mean, `METRIC.low` and `METRIC.high` (95 % intervals).

        metrics: those of the report by default; any that `self.metrics` lists. Raises
        DescriptionError with the nearest name.
        """
        from sweeps.report.frame import Frame
        from sweeps.report.group_sections import grid

        found, chosen = self.report.findings, self._known(metrics)
        groups = found.table.groups
        rows = [_row(row, chosen) for group in groups for row in group.ordered()]
        return Frame(found.table.name, rows, [grid(found, group, group.title) for group in groups])

    @property
    def metrics(self) -> list[str]:
        """The names of all metrics that are numbers."""
        rows = (row for group in self.report.table.groups for row in group.rows)
        found = (metrics for row in rows for metrics in row.replications.values())
        return list(dict.fromkeys(name for each in found for name in each if is_number(each[name])))

    def _known(self, metrics: Iterable[str] | None) -> list[str]:
        known = self.metrics
        if metrics is None:
            figures = figures_of(self.report.table.compared_by or SERVED)
            return [figure.metric for figure in figures if figure.metric in known]
        chosen = list(metrics)
        for name in chosen:
            if name not in known:
                raise DescriptionError(f"no metric {name!r} in {self.path}; {nearest(name, known)}")
        return chosen

    @property
    def figures(self) -> list[str]:
        """The names that `figure` takes."""
        from sweeps.report.picture import pictures

        return list(pictures(self.report))

    def figure(self, name: str) -> Picture:
        """Charts of the report by name, such as `throughput`, those of all groups together. Raises
        DescriptionError with the nearest name."""
        from sweeps.report.picture import picture

        return picture(self.report, name)

    def sections(self) -> list[Section]:
        """What a notebook shows: problems, verdicts, and a table of each group."""
        from sweeps.report.footnotes import footnotes
        from sweeps.report.group_sections import grid
        from sweeps.sections.section import Say, Section

        found = self.report.findings
        table = found.table
        blocks: list[Block] = [Say(text, "problem") for text in [*table.problems, *self.failures]]
        blocks += [Say(text, "verdict") for text in self.sentences]
        blocks += [grid(found, group, group.title) for group in table.groups]
        foot = f"{table.state}, in {self.path}. {footnotes(table, blocks)}"
        return [Section(table.name, [*blocks, Say(foot)])]

    def save(self, file: str | Path) -> Path:
        """Write the whole report as a page (.html) or Markdown (.md). Raises DescriptionError for
        other names."""
        from sweeps.report.shown import save

        return save([self.report.section], Path(file))

    def _repr_html_(self) -> str:
        from sweeps.report.page import fragment

        return fragment(self.sections())

    def _repr_markdown_(self) -> str:
        from sweeps.report.markdown import markdown

        return markdown(self.sections())

    def __str__(self) -> str:
        return "\n".join([*self.sentences, "", str(self.table())])

    def __repr__(self) -> str:
        return f"Result({str(self.path)!r})"


def _row(row: Row, metrics: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {
        **row.overrides, "control": row.control, "replications": len(row.replications),
    }  # fmt: skip
    for name in metrics:
        interval = row.interval(name)
        found[name] = None if interval is None else interval.mean
        if interval is not None and interval.count > 1:
            found |= {f"{name}.low": interval.low, f"{name}.high": interval.high}
    return found | {"limit": ", ".join(limit_texts(row.limits())) or None}
