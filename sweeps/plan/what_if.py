"""What-ifs: changes of a sweep's base, each alone, and some of them together.

`changes` names them, each with its overrides by dotted path; `together` names combinations of those
that go together; `conditions` are changes of what is served, at which only the ranking is compared.
Each is crossed with the axes, beside the base as it is described.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hwmodel.description.description import Document, nearest
from sweeps.analyse.statistics import Interval
from sweeps.plan.experiment import device_of
from sweeps.plan.sweep import Point, SweepSpec
from sweeps.plan.variant import AS_DESCRIBED, Variant

if TYPE_CHECKING:
    pass

CHANGE = "change"
"""The key of a result's overrides that names its change."""


class WhatIfSpec(SweepSpec):
    """A sweep whose base is changed."""

    changes: dict[str, dict[str, Any]]
    """Name -> overrides: what-ifs, each of which is crossed with the axes beside the base."""
    together: dict[str, list[str]] = {}
    """Name -> names of changes that are made at once."""

    conditions: dict[str, dict[str, Any]] = {}
    """Name -> overrides: as changes, but other requests are served, so that rates do not compare
    with those of the base: lengths, a limit."""
    of: dict[str, str] = {}
    """Name of a change -> the one competitor that it changes; the others stay."""

    def refuse_inconsistent(self) -> None:
        self.refuse_without_rate()
        if twice := next((name for name in self.conditions if name in self.changes), None):
            raise ValueError(f"conditions: {twice!r}: a change has this name")
        several = {**self.changes, **self.conditions}
        for name, competitor in self.of.items():
            for given, known in ((name, list(several)), (competitor, self.competitors)):
                if given not in known:
                    raise ValueError(f"of: {name!r}: no {given!r}; {nearest(given, known)}")
        for name, overrides in several.items():
            where = f"{'changes' if name in self.changes else 'conditions'}: {name!r}"
            if name == AS_DESCRIBED:
                raise ValueError(f"{where}: this is what the base is called; take another name")
            if not overrides:
                raise ValueError(f"{where}: expected at least one path and its value")
            for path in overrides:
                if path in self.axes:
                    raise ValueError(f"{where}: {path} is an axis already")
        for name, parts in self.together.items():
            where = f"together: {name!r}"
            if name in several or name == AS_DESCRIBED:
                raise ValueError(f"{where}: the name is taken")
            if len(parts) < 2:
                raise ValueError(f"{where}: expected two changes or more")
            for part in parts:
                if part not in self.changes:
                    hint = nearest(part, list(self.changes))
                    raise ValueError(f"{where}: no change {part!r}; {hint}")
            paths = [path for part in parts for path in self.changes[part]]
            if twice := next((path for path in paths if paths.count(path) > 1), None):
                raise ValueError(f"{where}: {twice} is changed twice; these do not go together")

    def variants(self, document: Document) -> list[Variant]:
        """The base, each change alone, each combination, each condition."""
        made = {
            name: [
                (path, value, document.mark((key, name, path))) for path, value in overrides.items()
            ]
            for key in ("changes", "conditions")
            for name, overrides in getattr(self, key).items()
        }
        for name, parts in self.together.items():
            made[name] = [change for part in parts for change in made[part]]
        base = Variant({CHANGE: AS_DESCRIBED}, [])
        return [base, *(Variant({CHANGE: n}, made[n], self.of.get(n)) for n in made)]

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
class Sensitivity:
    """What changes do to one rate, or to the ratio of two."""

    subject: str
    levels: dict[str, Interval]
    """By change, `as described` among them: means of the rate, or log ratios."""
    effects: dict[str, Interval]
    """By change: logarithm of the level with the change over the level without."""


@dataclass(frozen=True)
class Together:
    """Several changes made at once."""

    name: str
    parts: list[str]
    effects: dict[str, Interval]
    """By competitor, of logarithms."""
    subject: str
    """The competitor whose excess it is."""
    excess: Interval | None
    """Logarithm of the effect over the product of those of the parts, each alone."""
