"""What a report of a run says: the question, the answer, what shows it, what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from sweeps.experiments.break_even import PARAMETER
from sweeps.experiments.variant import AS_DESCRIBED
from sweeps.experiments.what_if import CHANGE
from sweeps.papers.odma.paper_contents import paper_blocks, paper_grids
from sweeps.render.section import Block, Grid, Say, Section
from sweeps.reports.break_even_verdict import break_even_blocks, break_even_grids
from sweeps.reports.conclusion import sentences
from sweeps.reports.gallery import charts
from sweeps.reports.gap import CONTROL
from sweeps.reports.inputs import configuration, origin
from sweeps.reports.memory_map import memory_map
from sweeps.reports.table import HEADINGS, Group, Table
from sweeps.reports.trend import trends
from sweeps.reports.verdict import judge
from sweeps.reports.what_if_verdict import what_if_blocks, what_if_grids
from sweeps.results.figures import FIGURES, THROUGHPUT
from sweeps.studies.study_contents import study_blocks

_OPEN = 6
"""Groups a page shows unfolded."""
_MAPS = 6
"""Maps of memory in a page, a few hundred KB each."""
_NEWER = {
    "latency distributions": ("quantiles",),
    "curves over time": ("over_time",),
}
"""What a page shows, and the metrics it needs, which runs of older versions do not have."""


def contents(table: Table) -> Section:
    """The report of one run."""
    rest = [configuration(table), *origin(table)]
    return Section(table.name, [*answer(table), *shown(table), *rest])


def answer(table: Table) -> list[Block]:
    """The question, what is missing, and the sentences."""
    question = table.question or str(table.config.get("summary", ""))
    problems = [Say(f"{text}.", "problem") for text in [*table.problems, *_lacking(table)]]
    verdicts = [Say(text, "verdict") for text in sentences(table)]
    return [Say(question, "question"), *problems, *verdicts, Say(f"{table.state}.")]


def shown(table: Table) -> list[Block]:
    """The tables and charts behind the sentences."""
    if table.of_paper:
        return paper_blocks(table)
    blocks: list[Block] = []
    if found := trends(table):
        blocks.append(Section("Along the axes", list(found)))
    if table.trials is not None:
        return [*blocks, *study_blocks(table, table.trials)]
    groups = table.groups
    if table.config.get("changes"):
        blocks += what_if_blocks(table)
        groups = [group for group in groups if group.others.get(CHANGE) == AS_DESCRIBED]
    elif table.config.get("break_even"):
        blocks += break_even_blocks(table)
        groups = [group for group in groups if group.others.get(PARAMETER) == AS_DESCRIBED]
    many = len(groups) > _OPEN
    blocks += [_group(table, group, many and i >= _OPEN) for i, group in enumerate(groups)]
    if rest := [group for group in table.groups if group not in groups and CHANGE in group.others]:
        inner: list[Block] = [_group(table, group, True) for group in rest]
        blocks.append(Section("Each change", inner, folded=True))
    if maps := list(islice(_maps(table), _MAPS)):
        blocks.append(Section("Physical memory", maps))
    return blocks


def grids(table: Table) -> list[Grid]:
    """The tables of a sweep that has others than its groups'; none of the rest."""
    if table.of_paper:
        return paper_grids(table)
    if table.config.get("changes"):
        return what_if_grids(table)
    return break_even_grids(table) if table.config.get("break_even") else []


def _maps(table: Table) -> Iterator[Block]:
    """Maps of the points whose memory was recorded (`logs: [memory]`)."""
    for group in table.groups:
        for row in group.main():
            name = f"{group.title}, {row.name}"
            chart = memory_map(table.path, name, row.point, min(row.replications))
            if chart is not None:
                yield chart


def _lacking(table: Table) -> Iterator[str]:
    """Charts that these results cannot show."""
    if table.trials is not None:
        return
    found = [
        metrics for group in table.groups for row in group.main() if row.values(THROUGHPUT)
        for metrics in row.raw.values()
    ]  # fmt: skip
    version = table.provenance.get("version", "of unknown number")
    for what, keys in _NEWER.items():
        if found and not any(key in metrics for metrics in found for key in keys):
            yield f"no {what}: version {version} did not record them"


def _group(table: Table, group: Group, folded: bool) -> Section:
    note = Say(table.note + _control(table))
    return Section(group.title, [*charts(group), grid(table, group), note], folded)


def grid(table: Table, group: Group, title: str = "") -> Grid:
    """The figures of a group, a row a competitor; columns that nobody has are left out."""
    rows = group.ordered()
    cells = [row.cells() for row in rows]
    shown = [i for i in range(len(HEADINGS)) if any(found[i] != "–" for found in cells)]
    return Grid(
        title, [table.compared, *(HEADINGS[i] for i in shown)],
        [[row.title, *(found[i] for i in shown)] for row, found in zip(rows, cells, strict=True)],
        frozenset(i for i, row in enumerate(rows) if row.control),
    )  # fmt: skip


def _control(table: Table) -> str:
    if all(row.control != CONTROL for group in table.groups for row in group.rows):
        return ""
    return f" ({CONTROL}): the same point with memory of a fixed efficiency and no banks."


def record(table: Table) -> dict[str, Any]:
    """A run's verdicts and figures in JSON's types, beside its sections."""
    return {
        "run": str(table.path),
        "name": table.name,
        "question": table.question,
        "done": table.done,
        "total": table.total,
        "problems": [*table.problems, *_lacking(table)],
        "sentences": sentences(table),
        "groups": [_record(group) for group in table.groups],
        "assumed": table.assumed,
    }


def _record(group: Group) -> dict[str, Any]:
    verdict = judge(group)
    return {
        "title": group.title,
        "points": group.others,
        "outcome": verdict.outcome,
        "best": verdict.best or None,
        "decided_by": verdict.decided_by if verdict.best else [],
        "rows": [
            {
                "name": row.name,
                "control": row.control,
                "replications": len(row.replications),
                "metrics": {
                    figure.metric: {"mean": found.mean, "low": found.low, "high": found.high}
                    for figure in FIGURES
                    if (found := row.interval(figure.metric)) is not None
                },
            }
            for row in group.ordered()
        ],
    }
