"""What the groups of a run say together: on what the winner depends, and what is open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sweeps.analyse.best import judge_all
from sweeps.analyse.cases import CaseOutcome, outcomes, under
from sweeps.analyse.facts import Dependence, Turned, Verdict
from sweeps.analyse.gap import CONTROL
from sweeps.analyse.label import label
from sweeps.analyse.table import Table, along
from sweeps.analyse.variants import overrides, with_role


@dataclass(frozen=True)
class Conclusion:
    """What is found beside the verdict on each group."""

    cases: list[CaseOutcome]
    """In the sweep's order, where it has cases; then nothing else is told."""
    dependences: list[Dependence]
    turned: list[Turned]


def conclude(table: Table, verdicts: list[Verdict], questions: tuple[str, ...]) -> Conclusion:
    """What verdicts, one for each group of the table, say together. questions: how axes begin
    that are questions; along any other a second winner leaves the answer undecided."""
    if with_role(table.config, "case"):
        return Conclusion(outcomes(table, verdicts), [], [])
    return Conclusion([], _dependences(table, verdicts, questions), list(_turned(table, verdicts)))


def _dependences(
    table: Table, verdicts: list[Verdict], asked: tuple[str, ...]
) -> list[Dependence]:  # fmt: skip
    """Who wins along each axis, all others alike."""
    known = {id(group): v for group, v in zip(table.groups, verdicts, strict=True)}
    return [
        Dependence(
            where, axis, table.compared,
            [(label(group.others[axis]), known[id(group)]) for group in groups],
            axis.split(".")[0] in asked,
        )
        for axis in table.config["axes"]
        for where, groups in along(table, axis)
        if len(groups) > 1
    ]  # fmt: skip


def _turned(table: Table, verdicts: list[Verdict]) -> Iterator[Turned]:
    """Controls with another winner, but the one that takes memory's banks away."""
    for name, changed in with_role(table.config, "control").items():
        if name == CONTROL:
            continue
        settings = (f"{path}={label(value)}" for path, value in overrides(changed).items())
        assumption = ", ".join(settings) or name
        others = judge_all([under(group, name) for group in table.groups])
        for here, there in zip(verdicts, others, strict=True):
            if here.outcome == there.outcome == "won" and here.best != there.best:
                yield Turned(here.title, {"without": here, "with": there}, assumption)
