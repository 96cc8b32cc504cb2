"""A point that does not fit: why, and with which change of it there would be room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class UnfitPoint:
    """A point of a sweep, by its number, whose device has no room."""

    point: int
    control: str
    overrides: dict[str, Any]
    why: str
    fits_with: dict[str, Any] | None = None
    """Path of the experiment -> value: the first change with which it would; None: none of those
    that were tried."""

    def result(self) -> dict[str, Any]:
        """What stands among the results for those that it has not: `does_not_fit`, without
        `metrics`."""
        return {"point": self.point, "overrides": self.overrides, "does_not_fit": self.why}
