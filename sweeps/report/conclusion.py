"""What the groups of a run say together: on what the winner depends, and what is open.

Along a device, a model or a workload another winner is a finding. Any other axis, and a control, is
an assumption: there another winner leaves the answer undecided.
"""

from __future__ import annotations

from collections.abc import Iterator

from sweeps.analyse.cases import outcomes
from sweeps.analyse.facts import Dependence, Verdict
from sweeps.analyse.figures import THROUGHPUT
from sweeps.analyse.gap import CONTROL, references
from sweeps.analyse.label import label
from sweeps.analyse.table import Group, Row, Table, along
from sweeps.analyse.variants import overrides, with_role
from sweeps.analyse.verdict import judge
from sweeps.plan.layout import DESCRIBED
from sweeps.report import phrases

_ASKED = (*DESCRIBED, "load", "slo", "requests")
"""Axes that begin so are questions, not assumptions."""


def sweep_sentences(table: Table) -> list[str]:
    """What the groups say together, then the verdict of each; of cases, their outcomes alone."""
    if with_role(table.config, "case"):
        return list(phrases.cases(outcomes(table)))
    verdicts = [judge(group) for group in table.groups]
    found = [*conclusions(table, verdicts), *map(phrases.verdict, verdicts)]
    held = [each for group in table.groups for each in references(group)]
    return [*found, *map(phrases.reference, held)]


def conclusions(table: Table, verdicts: list[Verdict]) -> list[str]:
    """Sentences on all groups; none where there is one alone and no control changes it."""
    known = {id(group): v for group, v in zip(table.groups, verdicts, strict=True)}
    found: list[str] = []
    for axis in table.config["axes"]:
        for where, groups in along(table, axis):
            if len(groups) > 1:
                found += _axis(table, axis, where, groups, known)
    return [*found, *_controls(table, verdicts)]


def _axis(
    table: Table, axis: str, where: str, groups: list[Group], known: dict[int, Verdict]
) -> Iterator[str]:
    outcomes = [(label(group.others[axis]), known[id(group)]) for group in groups]
    asked = axis.split(".")[0] in _ASKED
    found = Dependence(where, axis, table.compared, outcomes, asked)
    yield from phrases.dependence(found)
    if axis == "device" and found.winners:
        tops = [
            (label(group.others[axis]), top.name, top.mean(THROUGHPUT) or 0.0)
            for group in groups if (top := _top(group)) is not None
        ]  # fmt: skip
        if len(tops) > 1:
            yield phrases.devices(where, sorted(tops, key=lambda top: -top[2]))


def _top(group: Group) -> Row | None:
    rows = [row for row in group.main() if row.mean(THROUGHPUT)]
    return max(rows, key=lambda row: row.mean(THROUGHPUT) or 0.0, default=None)


def _controls(table: Table, verdicts: list[Verdict]) -> Iterator[str]:
    """Controls, but the one that takes memory's banks away, with another winner."""
    for name, changed in with_role(table.config, "control").items():
        if name == CONTROL:
            continue
        for group, here in zip(table.groups, verdicts, strict=True):
            rows = [Row(r.name, "", r.replications) for r in group.rows if r.control == name]
            there = judge(Group(group.title, rows))
            if here.outcome == there.outcome == "won" and here.best != there.best:
                what = ", ".join(
                    f"{path}={label(value)}" for path, value in overrides(changed).items()
                )
                where = f"undecided: the winner changes with {what or name}"
                yield phrases.changed_winner(where, here, there, ("without", "with"))
