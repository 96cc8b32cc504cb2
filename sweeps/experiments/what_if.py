"""What-ifs: changes of a sweep's base, each alone, and some of them together.

`changes` names them, each with its overrides by dotted path; `together` names combinations of those
that go together. Each is crossed with the axes, beside the base as it is described.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hwmodel.description.description import Document, nearest
from sweeps.experiments.experiment import device_of
from sweeps.experiments.sweep import Point, SweepSpec
from sweeps.experiments.variant import AS_DESCRIBED, Variant

CHANGE = "change"
"""The key of a result's overrides that names its change."""


class WhatIfSpec(SweepSpec):
    """A sweep whose base is changed."""

    changes: dict[str, dict[str, Any]]
    """Name -> overrides: what-ifs, each of which is crossed with the axes beside the base."""
    together: dict[str, list[str]] = {}
    """Name -> names of changes that are made at once."""

    def refuse_inconsistent(self) -> None:
        self.refuse_without_rate()
        for name, overrides in self.changes.items():
            where = f"changes: {name!r}"
            if name == AS_DESCRIBED:
                raise ValueError(f"{where}: this is what the base is called; take another name")
            if not overrides:
                raise ValueError(f"{where}: expected at least one path and its value")
            for path in overrides:
                if path in self.axes:
                    raise ValueError(f"{where}: {path} is an axis already")
        for name, parts in self.together.items():
            where = f"together: {name!r}"
            if name in self.changes or name == AS_DESCRIBED:
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
        """The base, each change alone, and each combination."""
        made = {
            name: [
                (path, value, document.mark(("changes", name, path)))
                for path, value in overrides.items()
            ]
            for name, overrides in self.changes.items()
        }
        for name, parts in self.together.items():
            made[name] = [change for part in parts for change in made[part]]
        base = Variant({CHANGE: AS_DESCRIBED}, [])
        return [base, *(Variant({CHANGE: name}, changes) for name, changes in made.items())]

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
