"""What a report of a run says: the question, the answer, what shows it, what it rests on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from sweeps.analyse.facts import Verdict
from sweeps.analyse.objective import figures_of
from sweeps.analyse.table import Group, Table
from sweeps.analyse.verdict import judge_all
from sweeps.report.inputs import configuration, origin
from sweeps.report.overview import compared, overview
from sweeps.report.presenters import presenter_of, sentences
from sweeps.report.section import Block, Say, Section


def contents(table: Table) -> Section:
    """The report of one run."""
    rest = [replace(each, folded=True) for each in [configuration(table), *origin(table)]]
    blocks = [*answer(table), *presenter_of(table).sections(table), *rest]
    return Section(table.name, blocks, compared=compared(table))


def answer(table: Table) -> list[Block]:
    """The question, what is missing, the verdict with its picture and table, other findings."""
    question = table.question or str(table.config.get("summary", ""))
    missing = [*table.problems, *presenter_of(table).lacking(table)]
    problems = [Say(f"{text}.", "problem") for text in missing]
    lead, *others = sentences(table)
    blocks: list[Block] = [Say(question, "question"), *problems, Say(lead, "lead")]
    blocks += overview(table)
    if others:
        title = f"{len(others)} more finding{'s' * (len(others) > 1)}"
        blocks.append(Section(title, [Say(text, "verdict") for text in others], folded=True))
    return [*blocks, Say(f"{table.state}.")]


def record(table: Table) -> dict[str, Any]:
    """A run's verdicts and figures in JSON's types, beside its sections."""
    return {
        "run": str(table.path), "name": table.name, "question": table.question, "done": table.done,
        "total": table.total, "problems": [*table.problems, *presenter_of(table).lacking(table)],
        "sentences": sentences(table),
        "groups": [*map(_record, table.groups, judge_all(table.groups))],
        "assumed": table.assumed,
    }  # fmt: skip


def _record(group: Group, verdict: Verdict) -> dict[str, Any]:
    return {
        "title": group.title,
        "points": group.others,
        "outcome": verdict.outcome,
        "objective": verdict.objective.metric,
        "best": verdict.best or None,
        "keep": verdict.ties[0] if verdict.outcome == "close" else None,
        "within": verdict.within if math.isfinite(verdict.within) else None,
        "kv_memory_binds": verdict.bound,
        "decided_by": verdict.decided_by if verdict.best else [],
        "rows": [
            {
                "name": row.name,
                "control": row.control,
                "replications": len(row.replications),
                "overloaded": row.overloaded,
                "metrics": {
                    figure.metric: {"mean": found.mean, "low": found.low, "high": found.high}
                    for figure in figures_of(group.objective)
                    if (found := row.interval(figure.metric)) is not None
                },
            }
            for row in group.ordered()
        ],
    }
