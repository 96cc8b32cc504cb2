"""The cases of a sweep: the outcome of each, and the assumptions that it hangs on."""

from __future__ import annotations

from dataclasses import dataclass

from sweeps.analyse.facts import Reference, Verdict
from sweeps.analyse.gap import CONTROL, references
from sweeps.analyse.table import Group, Row, Table
from sweeps.analyse.variants import with_role
from sweeps.analyse.verdict import judge


def outcomes(table: Table) -> list[CaseOutcome]:
    """Of each case, in the sweep's order; a control is an assumption that is made otherwise."""
    assumptions = [name for name in with_role(table.config, "control") if name != CONTROL]
    return [
        CaseOutcome(
            judge(group),
            {name: found for name in assumptions if (found := _under(group, name)) is not None},
            references(group),
        )
        for group in table.groups
    ]


def _under(group: Group, control: str) -> Verdict | None:
    """The outcome in a control; None before all of it is there."""
    rows = [Row(r.name, "", r.replications) for r in group.rows if r.control == control]
    done = [(row.name, row.replications.keys()) for row in rows]
    whole = done == [(row.name, row.replications.keys()) for row in group.main()]
    return judge(Group(group.title, rows)) if whole else None


@dataclass(frozen=True)
class CaseOutcome:
    """A case's outcome, and what becomes of it where something assumed is otherwise."""

    verdict: Verdict
    controls: dict[str, Verdict]
    """By assumption."""
    references: list[Reference]

    @property
    def hangs_on(self) -> list[str]:
        """Assumptions under which the outcome is another, or another one wins."""
        now = (self.verdict.outcome, self.verdict.best)
        return [n for n, v in self.controls.items() if (v.outcome, v.best) != now]
