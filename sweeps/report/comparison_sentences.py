"""The sentences on what differs between two runs."""

from __future__ import annotations

from collections.abc import Sequence

from sweeps.analyse.facts import MetricChange
from sweeps.analyse.objective import SERVED, Objective
from sweeps.sections.formats import (
    counted,
    either_way,
    gain,
    listed,
    some,
)  # fmt: skip


def inputs(questions: list[str], count: int, programs: Sequence[str]) -> str:
    """questions: what the runs were asked that differs; count: inputs that differ in all."""
    text = f"Inputs that differ: {some(questions)}." if questions else "Inputs: the same."
    if count and not questions:
        text = f"Inputs: the same settings; descriptions differ in {counted(count, 'place')}."
    return f"{text} The programs differ in {listed(programs)}." if programs else text


def results(
    count: int, same: bool, changes: list[tuple[str, MetricChange]], objective: Objective = SERVED
) -> str:
    """count: points in both; same: bit for bit; changes: of the objective, by point."""
    if not count or same or not changes:
        text = f"the same, bit for bit, in all {count} points" if same else "other metrics differ"
        return f"Results: {text if count else 'the two have no point in common'}."
    ranked = sorted(changes, key=lambda item: (not item[1].change.sign, -abs(item[1].change.mean)))
    title, change = ranked[0]
    many = sum(bool(each.change.sign) for _, each in changes)
    what = f"{objective.words.split(',')[0]} {'change' if objective.is_rate else 'changes'}"
    head = f"{what} significantly in {many} of {counted(len(changes), 'point')}"
    if change.certain == "unknown":
        most = f"{gain(change.change)} in {title}"
        return f"{what} by at most {most}; one replication gives no interval."
    if many:
        return f"{head}, the most in {title}: {gain(change.change, named=True)}."
    return f"{head}: {either_way(max((c.change for _, c in changes), key=lambda i: i.half))}."
