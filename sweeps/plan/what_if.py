"""What-ifs: changes of a sweep's base, each alone, and some of them together; and what they do.

Variants with the role `change` are made one at a time beside the base as it is described; one with
`parts` makes several others at once. `condition` changes what is served, so that only the ranking
is compared. An effect is a paired log ratio: of a rate, or of the ratio of two, with the change
over that without, on the same requests. Intervals are Student's t over replications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log1p
from typing import Any

from hwmodel.description.description import Document, nearest
from sweeps.analyse.effects import Sensitivity, logs_of, mean, sensitivity, weighted
from sweeps.analyse.figures import COMPUTE
from sweeps.analyse.label import label
from sweeps.analyse.objective import Objective
from sweeps.analyse.rows import Record
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Group, Table, along
from sweeps.analyse.variants import with_role
from sweeps.plan.experiment import device_of
from sweeps.plan.sweep_spec import Point, SweepSpec
from sweeps.plan.variant import AS_DESCRIBED, Layer

MOST = 0.5
"""Of step time, from which on FLOPs bind."""
SMALL = 0.01
"""A change of a rate, or of an answer, that is below it does not matter (assumed)."""
CHANGE = "change"
"""The key of a result's overrides that names its change."""


class WhatIfSpec(SweepSpec):
    """A sweep whose base is changed."""

    roles = ("change", "condition", "control")
    page = "sweeps.report.what_if_page:account"

    def refuse_variants(self) -> None:
        super().refuse_variants()
        self.refuse_without_objective()
        changes = self.with_role("change")
        if not changes:
            raise ValueError("variants: rule effects needs one with the role change")
        for name, variant in {**changes, **self.with_role("condition")}.items():
            if taken := next((path for path in variant.overrides if path in self.axes), None):
                raise ValueError(
                    f"variants.{name}: {taken} is an axis already; expected keys of it, as in"
                    f" {taken}.block"
                    if taken == self.compare
                    else f"variants.{name}: {taken} is an axis already"
                )
            if variant.parts:
                self._refuse_parts(f"variants.{name}", variant.parts)

    def _refuse_parts(self, where: str, parts: list[str]) -> None:
        single = {n: v for n, v in self.with_role("change").items() if not v.parts}
        if len(parts) < 2:
            raise ValueError(f"{where}.parts: expected two changes or more")
        for part in parts:
            if part not in single:
                raise ValueError(f"{where}.parts: no change {part!r}; {nearest(part, [*single])}")
        paths = [path for part in parts for path in single[part].overrides]
        if twice := next((path for path in paths if paths.count(path) > 1), None):
            raise ValueError(f"{where}.parts: {twice} is changed twice; these do not go together")

    @classmethod
    def findings(cls, table: Table) -> list[Changes]:
        return what_ifs(table)

    @classmethod
    def total(cls, config: Mapping[str, Any], records: Sequence[Record]) -> int:
        several = {**with_role(config, "change"), **with_role(config, "condition")}
        return (1 + len(several)) * super().total(config, records)

    def layers(self, document: Document) -> list[Layer]:
        """The base, then each change and each condition."""
        several = {**self.with_role("change"), **self.with_role("condition")}
        ordered = [name for name in self.variants if name in several]
        return [Layer({CHANGE: AS_DESCRIBED}, []), *(self._layer(document, n) for n in ordered)]

    def _layer(self, document: Document, name: str) -> Layer:
        variant = self.variants[name]
        parts = variant.parts or [name]
        changes = [c for part in parts for c in self.variants[part].changes(document, part)]
        only = variant.of if isinstance(variant.of, str) else None
        return Layer({CHANGE: name}, changes, only, own=variant.own_changes(document, name))

    def recorded(self, points: Sequence[Point]) -> dict[str, Any]:
        """Peak and capacity of the device under each change, by the change's name."""
        found: dict[str, Any] = {}
        for point in points:
            device = device_of(point.experiment)
            found.setdefault(point.overrides[CHANGE], {})[device.name] = {
                "peak_gbps": device.peak_gbps,
                "capacity_bytes": device.capacity_bytes,
            }
        return {"hardware": found}


@dataclass(frozen=True)
class Together:
    """Several changes made at once."""

    name: str
    subject: str
    """The competitor whose excess it is."""
    excess: Interval | None
    """Logarithm of the effect over the product of those of the parts, each alone."""


@dataclass(frozen=True)
class Changes:
    """The changes at one combination of the axes that are not compared."""

    where: str
    base: Group
    rates: list[Sensitivity]
    """Of each competitor that has results, in the sweep's order."""
    answers: list[Sensitivity]
    """Of the first over each other, or reversed where less is better: above 1 it is ahead."""
    changes: list[str]
    """Those that have results, the largest effect on any rate first; then conditions."""
    together: list[Together]
    unit: Objective
    limits: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    """Change, and as described -> competitor -> limit -> share of the time that it bound."""
    flops: dict[str, dict[str, float]] = field(default_factory=dict)
    """Likewise the share of step time in which FLOPs take longer than bytes."""

    def binds(self, change: str, subject: str) -> str | None:
        """What limits a competitor the most of the time with a change; None where unknown."""
        shares = self.limits.get(change, {}).get(subject, {})
        return max(shares, key=shares.__getitem__, default=None)

    def computes(self, change: str, subject: str) -> bool:
        """Whether FLOPs take most of a competitor's steps with a change."""
        return self.flops.get(change, {}).get(subject, 0.0) >= MOST

    @property
    def ranked(self) -> dict[str, list[str]]:
        """The changes that matter, as one of their effects is significant and above SMALL, the
        largest first; those of which the significant ones are smaller; those without any."""
        every = [*self.rates, *self.answers]
        found: dict[str, list[str]] = {"matters": [], "small": [], "not significant": []}
        for change in self.changes:
            if not any(change in each.effects for each in every):
                continue
            largest = self.largest(change)
            group = "not significant" if largest is None else "matters"
            if largest is not None and abs(largest[1].mean) < log1p(SMALL):
                group = "small"
            found[group].append(change)
        return found

    def largest(self, change: str) -> tuple[str, Interval] | None:
        """The competitor, or the answer, on which the effect of a change is the largest of those
        that are significant, and that effect."""
        known = [
            (each.subject, each.effects[change]) for each in (*self.rates, *self.answers)
            if each.signs.get(change)
        ]  # fmt: skip
        return max(known, key=lambda pair: abs(pair[1].mean), default=None)

    @property
    def alone(self) -> list[str]:
        """The changes that are not several together."""
        several = [each.name for each in self.together]
        return [change for change in self.changes if change not in several]


def what_ifs(table: Table) -> list[Changes]:
    """What a run of what-ifs found, as far as it is there."""
    places = (
        (where, {str(group.others[CHANGE]): group for group in groups})
        for where, groups in along(table, CHANGE)
    )
    found = (_what_if(table, *place) for place in places if AS_DESCRIBED in place[1])
    return [each for each in found if each is not None]


def _what_if(table: Table, where: str, groups: dict[str, Group]) -> Changes | None:
    unit = table.objective
    several = with_role(table.config, "change")
    combined = {name: each["parts"] for name, each in several.items() if each.get("parts")}
    conditions = with_role(table.config, "condition")
    known = [name for name in (*several, *conditions) if name in groups]
    logs = {
        name: {row.name: logs_of(row, unit.metric) for row in groups[name].main()}
        for name in (AS_DESCRIBED, *known)
    }
    compared = map(label, table.config["axes"][table.config["compare"]])
    names = [name for name in compared if logs[AS_DESCRIBED].get(name)]
    if not names:
        return None
    rates = [
        sensitivity(name, {c: of.get(name, {}) for c, of in logs.items()}, AS_DESCRIBED,
                    conditions, rates=True)
        for name in names
    ]  # fmt: skip
    first, *rivals = names
    sign = -1 if unit.less else 1
    answers = [
        sensitivity(f"{rival} / {first}" if unit.less else f"{first} / {rival}", {
            c: weighted([(sign, of.get(first, {})), (-sign, of.get(rival, {}))])
            for c, of in logs.items()
        }, AS_DESCRIBED) for rival in rivals
    ]  # fmt: skip
    sizes = {
        change: max(abs(rate.effects[change].mean) for rate in rates if change in rate.effects)
        for change in logs
        if any(change in rate.effects for rate in rates)
    }
    changes = sorted(sizes, key=lambda name: -sizes[name])
    together = []
    for name in changes:
        if parts := combined.get(name):
            excess = [(1, logs[name].get(first, {})), (len(parts) - 1, logs[AS_DESCRIBED][first])]
            excess += [(-1, logs.get(part, {}).get(first, {})) for part in parts]
            together.append(Together(name, first, mean(weighted(excess))))
    answers = [each for each in answers if AS_DESCRIBED in each.levels]
    changes += [name for name in known if name in conditions]
    limits = {
        name: {row.name: row.limits() for row in groups[name].main() if row.replications}
        for name in (AS_DESCRIBED, *known)
    }
    flops = {
        name: {row.name: part for row in groups[name].main() if (part := row.mean(COMPUTE))}
        for name in (AS_DESCRIBED, *known)
    }
    return Changes(
        where, groups[AS_DESCRIBED], rates, answers, changes, together, unit, limits, flops
    )
