"""What a run found, computed once from its table: every page, line and file says these.

They are data: verdicts with their gaps, intervals, families and causes, and what the run's design
or measure finds beside them. `findings.json` in the run directory holds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from hwmodel.description.yaml_writer import plain
from sweeps.analyse.best import judge_all, pairs_of
from sweeps.analyse.conclusion import conclude
from sweeps.analyse.facts import Gap, Pair, Reference, Verdict
from sweeps.analyse.figures import Figure
from sweeps.analyse.gap import references
from sweeps.analyse.objective import Objective
from sweeps.analyse.table import Group, Row, Table
from sweeps.plan.layout import DESCRIBED
from sweeps.plan.rules import kind_of, spec_of
from sweeps.run import next_answer
from sweeps.run.explanation import Explanation, read
from sweeps.run.next_answer import NextAnswer
from sweeps.run.reading import RunParts, read_sweep, sweep_table
from sweeps.run.store import FINDINGS, RunDirectory, write_atomically

ASKED = (*DESCRIBED, "load", "slo", "requests")
"""Along axes that begin so another winner is a finding. Any other is an assumption: there another
winner leaves the answer undecided."""
Own = TypeVar("Own")


@dataclass(frozen=True)
class Findings(Generic[Own]):
    """Of one run, finished or not."""

    table: Table
    verdicts: list[Verdict]
    """On each group, in their order: one family."""
    references: list[list[Reference]]
    """Of each group."""
    own: Own
    """What the run's kind finds beside them: see `findings` of its rule or its measure."""
    explanations: list[Explanation] = field(default_factory=list)
    """Of gaps that `bankwise explain` took apart."""
    next_answers: list[NextAnswer] = field(default_factory=list)
    """Gaps to which `bankwise explain next` put the next question."""
    pairs: list[list[Pair]] = field(default_factory=list)
    """Of each group."""

    def of(self, group: Group) -> tuple[Verdict, list[Reference]]:
        """The verdict on a group of the table, and its references."""
        at = next(i for i, each in enumerate(self.table.groups) if each is group)
        return self.verdicts[at], self.references[at]

    @property
    def leading_gap(self) -> tuple[Group, Gap] | None:
        """The gap that a report begins with: of the significant winners the one that is furthest
        ahead of its strongest rival, and that rival; None where none is."""
        nearest = [
            (group, min(verdict.gaps, key=lambda gap: gap.total.mean))
            for group, verdict in zip(self.table.groups, self.verdicts, strict=True)
            if verdict.best and verdict.gaps
        ]
        return max(nearest, key=lambda each: each[1].total.mean, default=None)


def find(table: Table) -> Findings[Any]:
    """What the run of a sweep found."""
    verdicts = judge_all(table.groups)
    own = spec_of(table.config).findings(table)
    if own is None:
        own = conclude(table, verdicts, ASKED)
    return Findings(
        table,
        verdicts,
        [references(group) for group in table.groups],
        own,
        read(table.path),
        next_answer.read(table.path),
        [pairs_of(group) for group in table.groups],
    )


def find_sweep(run: RunParts, directory: RunDirectory) -> Findings[Any]:
    """The same of what is in its directory."""
    return find(sweep_table(run, directory))


def keep(findings: Findings[Any]) -> None:
    """Write the findings beside the results."""
    text = json.dumps(plain(as_data(findings)), indent=1, allow_nan=False)
    write_atomically(findings.table.path / FINDINGS, text + "\n")


def keep_sweep(directory: RunDirectory) -> None:
    """Write what the run of a sweep in a directory found beside its results."""
    keep(find(read_sweep(directory)))


def as_data(findings: Findings[Any]) -> dict[str, Any]:
    """Findings in JSON's types: `kind`, `verdicts`, `references`, `own`, `explanations`, and
    `does_not_fit` where points do not. Intervals have `mean`, `low`, `high` and `count`; ends that
    are infinite are None."""
    parts = {each.name: getattr(findings, each.name) for each in fields(findings)}
    del parts["table"]
    unfit = {"does_not_fit": _data(findings.table.misfits)} if findings.table.misfits else {}
    return {"kind": kind_of(findings.table.config), **_data(parts), **unfit}


def _data(value: Any) -> Any:
    match value:
        case Objective() | Figure():
            return value.metric
        case Row() | Group() | Table():
            return value.title if isinstance(value, (Row, Group)) else value.name
        case BaseModel():
            return value.model_dump(mode="json", exclude_defaults=True)
        case Mapping():
            return {str(key): _data(each) for key, each in value.items()}
        case _ if is_dataclass(value):  # less what their repr leaves out
            told = [each.name for each in fields(value) if each.repr]
            return {name: _data(getattr(value, name)) for name in told}
        case tuple() if hasattr(value, "_asdict"):
            return _data(value._asdict())
        case list() | tuple() | set() | frozenset():
            return [_data(each) for each in value]
    return value
