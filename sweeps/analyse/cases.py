"""The cases of a sweep: the outcome of each, and the assumptions that it hangs on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sweeps.analyse.best import judge_all
from sweeps.analyse.facts import Reference, Verdict
from sweeps.analyse.gap import CONTROL, references
from sweeps.analyse.table import Group, Row, Table
from sweeps.analyse.variants import with_role


def outcomes(table: Table, verdicts: list[Verdict]) -> list[CaseOutcome]:
    """Of each case, in the sweep's order, with the verdict on it; a control is an assumption that
    is made otherwise."""
    assumptions = [name for name in with_role(table.config, "control") if name != CONTROL]
    others = {name: judge_all([under(g, name) for g in table.groups]) for name in assumptions}
    return [
        CaseOutcome(
            verdict,
            {name: found[i] for name, found in others.items() if _whole(group, name)},
            references(group),
        )
        for i, (group, verdict) in enumerate(zip(table.groups, verdicts, strict=True))
    ]


def under(group: Group, control: str) -> Group:
    """The competitors in a control, as a group of their own."""
    rows = [Row(r.name, "", r.replications) for r in group.rows if r.control == control]
    return replace(group, rows=rows)


def _whole(group: Group, control: str) -> bool:
    """Whether all of a control is there."""
    done = [(row.name, row.replications.keys()) for row in under(group, control).rows]
    return done == [(row.name, row.replications.keys()) for row in group.main()]


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
