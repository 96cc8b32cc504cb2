"""What differs between two runs: inputs, results, and how sure the differences are.

Points are matched by what they are: the value of every axis (and change) of either run, where a run
without that axis has the value of its base. Replications with the same seed served the same
requests and are paired; others are compared as independent samples.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sweeps.analyse.facts import MetricChange, Turned, Verdict
from sweeps.analyse.figures import GOODPUT, Figure
from sweeps.analyse.label import label
from sweeps.analyse.objective import SERVED, Objective, figures_of
from sweeps.analyse.rows import at, differences
from sweeps.analyse.statistics import difference, grown, interval, log_ratios
from sweeps.analyse.table import Row, Table

_NOT_INPUTS = ("sha256", "name", "summary", "question")


_CODE = ("version", "commit", "dirty", "python", "libraries")


@dataclass(frozen=True)
class PointPair:
    """A point that both runs have."""

    title: str
    changes: list[MetricChange]
    same: bool
    """Whether every metric of every replication is the same, bit for bit."""


@dataclass
class Comparison:
    """Two runs, `a` before and `b` after."""

    a: Table
    b: Table
    names: tuple[str, str]
    inputs: list[tuple[str, Any, Any]] = field(default_factory=list)
    """Dotted path, value in A, value in B."""
    code: list[tuple[str, Any, Any]] = field(default_factory=list)
    pairs: list[PointPair] = field(default_factory=list)
    alone: dict[str, list[str]] = field(default_factory=dict)
    """By run: titles of the points that only it has."""
    turned: list[Turned] = field(default_factory=list)
    """Groups in which another competitor wins, or none does any more."""

    @property
    def objective(self) -> Objective:
        """What the second compares by."""
        return self.b.compared_by or SERVED


def compared(a: Table, b: Table, verdicts: tuple[list[Verdict], list[Verdict]]) -> Comparison:
    """What differs between two runs, with the verdicts on the groups of each."""
    found = Comparison(a, b, _names(a, b), turned=list(_turned(_names(a, b), *verdicts)))
    found.inputs = [
        item
        for item in differences(a.config, b.config)
        if item[0].split(".")[-1] not in _NOT_INPUTS
    ]
    for key in _CODE:
        found.code += list(differences(a.provenance.get(key), b.provenance.get(key), key))
    axes = list(dict.fromkeys([*a.paths, *b.paths]))
    ours, theirs = _points(a, axes), _points(b, axes)
    figures = figures_of(found.objective)
    for key, (title, row) in ours.items():
        if key in theirs:
            other = theirs[key][1]
            changes = [each for figure in figures if (each := _change(figure, row, other))]
            same = row.replications == other.replications
            found.pairs.append(PointPair(title, changes, same))
    for name, mine, others in zip(found.names, (ours, theirs), (theirs, ours), strict=True):
        found.alone[name] = [title for key, (title, _) in mine.items() if key not in others]
    return found


def _names(a: Table, b: Table) -> tuple[str, str]:
    """What to call the two: their folders' names, where these differ."""
    ours, theirs = a.path.absolute(), b.path.absolute()
    if ours.name != theirs.name:
        return ours.name, theirs.name
    return str(a.path), str(b.path)


def _points(table: Table, axes: list[str]) -> dict[str, tuple[str, Row]]:
    """Title and row of each point, by what it is."""
    found = {}
    for group in table.groups:
        for row in group.rows:
            base = table.config["base"]
            values = [row.overrides.get(axis, at(base, *axis.split("."))) for axis in axes]
            key = json.dumps([row.control, *map(_named, values)], sort_keys=True, default=str)
            words = [label(value) for value in row.overrides.values()] or [table.name]
            found[key] = (", ".join([*words, row.control] if row.control else words), row)
    return found


def _named(value: Any) -> Any:
    """`paged` is short for `{name: paged}`; a file is known by its stem."""
    if isinstance(value, dict) and set(value) == {"name"}:
        value = value["name"]
    return label(value) if isinstance(value, str) else value


def _change(figure: Figure, ours: Row, theirs: Row) -> MetricChange | None:
    common = sorted(
        r for r in set(ours.replications) & set(theirs.replications)
        if ours.seeds.get(r) == theirs.seeds.get(r)
        and ours.values(figure.metric, [r]) and theirs.values(figure.metric, [r])
    )  # fmt: skip
    paired = bool(common)
    before = ours.values(figure.metric, common if paired else None)
    after = theirs.values(figure.metric, common if paired else None)
    if figure.metric == GOODPUT and len(set(before)) == len(set(after)) == 1:
        before, after = before[:1], after[:1]  # searched once for all replications
    if not before or not after:
        return None
    relative = min(*before, *after) > 0
    if paired and relative:
        found = interval(log_ratios(after, before)).mapped(grown)
    elif paired:
        found = interval([y - x for x, y in zip(before, after, strict=True)])
    elif relative:
        logs = ([math.log(value) for value in values] for values in (after, before))
        found = difference(*logs).mapped(grown)
    else:
        found = difference(after, before)
    old, new = (math.fsum(values) / len(values) for values in (before, after))
    return MetricChange(figure, old, new, found, relative, paired)


def decisive(pair: PointPair, objective: Objective = SERVED) -> MetricChange | None:
    """The change of the objective."""
    return next((c for c in pair.changes if c.figure.metric == objective.metric), None)


def _turned(
    names: tuple[str, str], before: list[Verdict], after: list[Verdict]
) -> Iterator[Turned]:  # fmt: skip
    known = {verdict.title: verdict for verdict in after}
    for ours in before:
        theirs = known.get(ours.title)
        if theirs is not None and (ours.outcome, ours.best) != (theirs.outcome, theirs.best):
            yield Turned(ours.title, dict(zip(names, (ours, theirs), strict=True)))
