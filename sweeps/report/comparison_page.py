"""How a comparison of two runs is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hwmodel.measure.student import LEVEL
from sweeps.analyse.comparison import Comparison, compared, decisive
from sweeps.analyse.facts import MetricChange
from sweeps.analyse.statistics import Interval
from sweeps.report.comparison_sentences import inputs, results
from sweeps.report.verdict_sentences import turned
from sweeps.run.findings import Findings
from sweeps.sections.chart import Bar, Bars
from sweeps.sections.formats import between, percent
from sweeps.sections.section import Block, Grid, Say, Section


def compare(a: Findings[Any], b: Findings[Any]) -> Comparison:
    """What differs between two runs."""
    return compared(a.table, b.table, (a.verdicts, b.verdicts))


def section(comparison: Comparison) -> Section:
    """The comparison as a section of a report."""
    a, b = comparison.names
    blocks: list[Block] = [Say(f"What changes from {a} to {b}?", "question")]
    for name, table in zip(comparison.names, (comparison.a, comparison.b), strict=True):
        blocks += [Say(f"{name}: {problem}.", "problem") for problem in table.problems]
    blocks += [Say(text, "verdict") for text in sentences(comparison)]
    blocks += [Say(_note(comparison)), *_charts(comparison)]
    if comparison.pairs:
        blocks.append(Section("Results", list(_results(comparison))))
    blocks.append(Section("Inputs that differ", list(_inputs(comparison))))
    return Section(f"{a} against {b}", blocks)


def sentences(comparison: Comparison) -> list[str]:
    """What differs in plain words: inputs, results, verdicts."""
    asked = [
        f"{path} {_short(old)} -> {_short(new)}"
        for path, old, new in comparison.inputs
        if not path.startswith("resolved.")
    ]
    programs = sorted({path.split(".")[0] for path, _, _ in comparison.code})
    same = all(pair.same for pair in comparison.pairs)
    changes = [
        (p.title, change)
        for p in comparison.pairs
        if (change := decisive(p, comparison.objective)) is not None
    ]
    return [
        inputs(asked, len(comparison.inputs), programs),
        results(len(comparison.pairs), same, changes, comparison.objective),
        *map(turned, comparison.turned),
    ]


def _note(found: Comparison) -> str:
    count = len(found.pairs)
    paired = {change.paired for pair in found.pairs for change in pair.changes}
    how = {
        frozenset({True}): "Replications with the same seed are paired. ",
        frozenset({False}): "Seeds differ, so replications are compared as independent samples. ",
    }.get(frozenset(paired), "")
    return (
        f"{how}(a to b): {100 * LEVEL:.0f} % intervals. Of {count} points without any difference"
        f" {(1 - LEVEL) * count:.1f} would differ by chance."
    )


def _charts(found: Comparison) -> Iterator[Bars]:
    bars = []
    for pair in found.pairs:
        if (change := decisive(pair, found.objective)) is not None:
            for i, value in enumerate((change.ours, change.theirs)):
                drawn = found.objective.scale * value
                mean = Interval(drawn, drawn, drawn, 0)
                bars.append(Bar(f"{pair.title}: {found.names[i]}", mean, i == 0))
    if bars:
        yield Bars(f"{found.objective.words}, A pale and B dark", bars)


def _results(found: Comparison) -> Iterator[Block]:
    """What moved, and how many figures did not."""
    columns = ["point", "metric", *found.names, "change", "certain"]
    every = [(pair.title, change) for pair in found.pairs for change in pair.changes]
    rows = [
        [title, c.figure.heading, c.figure.text(c.ours), c.figure.text(c.theirs), change_text(c),
         c.certain]
        for title, c in every if c.certain != "the same"
    ]  # fmt: skip
    marked = frozenset(i for i, row in enumerate(rows) if row[-1] in ("more", "less"))
    if rows:
        yield Grid("", columns, rows, marked=marked)
    if same := len(every) - len(rows):
        yield Say(f"{same} of {len(every)} figures are the same.")


def change_text(c: MetricChange) -> str:
    """The change of a metric with its interval, for tables."""
    if c.relative:
        return percent(c.change)
    return between(c.change, c.figure.text)


def _inputs(found: Comparison) -> Iterator[Block]:
    rows = [[path, _short(a), _short(b)] for path, a, b in [*found.inputs, *found.code]]
    if rows:
        yield Grid("", ["input", *found.names], rows, text=True)
    else:
        yield Say("None: the runs were asked the same, of the same descriptions and program.")
    for name, titles in found.alone.items():
        if titles:
            yield Say(f"Only {name} has: {'; '.join(titles)}.", "foot")


def _short(value: Any) -> str:
    if value is None:
        return "–"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def record(comparison: Comparison) -> dict[str, Any]:
    """The comparison in JSON's types."""
    return {
        "a": str(comparison.a.path),
        "b": str(comparison.b.path),
        "problems": {
            name: table.problems
            for name, table in zip(comparison.names, (comparison.a, comparison.b), strict=True)
        },
        "sentences": sentences(comparison),
        "inputs": [{"path": path, "a": a, "b": b} for path, a, b in comparison.inputs],
        "program": [{"path": path, "a": a, "b": b} for path, a, b in comparison.code],
        "points": [
            {"point": pair.title, "same": pair.same, "metrics": [_metric(c) for c in pair.changes]}
            for pair in comparison.pairs
        ],
        "alone": comparison.alone,
    }


def _metric(c: MetricChange) -> dict[str, Any]:
    return {
        "metric": c.figure.metric, "a": c.ours, "b": c.theirs, "change": c.change.mean,
        "low": c.change.low, "high": c.change.high, "relative": c.relative, "paired": c.paired,
        "certain": c.certain,
    }  # fmt: skip
