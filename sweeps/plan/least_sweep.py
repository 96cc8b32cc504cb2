"""A sweep that seeks the least value of one of its axes with which an objective is met.

How many cards keep the SLO, which bandwidth serves a load, from which extents on layout costs
little: for each competitor, at each combination of the other axes.
"""

from __future__ import annotations

from hwmodel.description.description import KeyPath, nearest
from hwmodel.description.units import number
from sweeps.analyse.least import Constraint, LeastFound, least_values
from sweeps.analyse.table import Table
from sweeps.plan.sweep_spec import SweepSpec


class LeastConstraint(Constraint):
    """The axis, and what has to be met along it."""

    axis: str
    """Whose least value is sought."""


class LeastSpec(SweepSpec):
    """A sweep along an axis of numbers."""

    page = "sweeps.report.least_page:account"

    least: LeastConstraint

    def refuse_inconsistent(self) -> None:
        axis = self.least.axis
        if axis not in self.axes or axis == self.compare:
            others = [path for path in self.axes if path != self.compare]
            raise ValueError(f"least.axis: expected an axis that is not compared;"
                             f" {nearest(axis, others)}")  # fmt: skip
        if any(number(value) is None for value in self.axes[axis]):
            raise ValueError(f"least.axis: expected numbers; got {self.axes[axis]}")

    @property
    def metrics(self) -> dict[KeyPath, str]:
        return {("least", "metric"): self.least.metric}

    @classmethod
    def findings(cls, table: Table) -> list[LeastFound]:
        kept = LeastConstraint.model_validate(table.config["least"])
        return least_values(table, kept.axis, lambda value: number(value) or 0.0, kept)
