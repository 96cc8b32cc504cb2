"""The rule of the least: the least value of a number from which on an objective is met.

A value counts where all larger ones meet the objective too. It is judged twice: by the means, and
by the whole intervals, so that what chance may have met is told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hwmodel.description.description import Strict, checked
from sweeps.analyse.figures import ATTAINMENT
from sweeps.analyse.label import label
from sweeps.analyse.statistics import Interval
from sweeps.analyse.table import Table, along

Value = TypeVar("Value")
_ROUNDING = 1e-12
"""Of a bound, by which a mean that is exactly it may differ."""


class Constraint(Strict):
    """What the mean of a metric has to keep."""

    metric: str
    """Path of the metric in the results."""
    at_most: float | None = None
    """The largest value of the metric that will do."""
    at_least: float | None = None
    """The least value of the metric that will do."""

    @checked
    def _one_of_two(self) -> None:
        if (self.at_most is None) == (self.at_least is None):
            raise ValueError("expected one of at_most and at_least")

    @property
    def name(self) -> str:
        """`slo.attainment >= 0.9`."""
        if self.at_most is not None:
            return f"{self.metric} <= {self.at_most:g}"
        return f"{self.metric} >= {self.at_least:g}"

    @property
    def bound(self) -> float:
        """The number that is kept."""
        found = self.at_least if self.at_most is None else self.at_most
        assert found is not None
        return found

    def violation(self, value: float) -> float:
        """By how much `value` breaks it; 0 or less where it does not."""
        by = value - self.bound if self.at_most is not None else self.bound - value
        return 0.0 if abs(by) <= _ROUNDING * abs(self.bound) else by

    def surely(self, interval: Interval) -> bool:
        """Whether a whole interval keeps it."""
        return self.violation(interval.high if self.at_most is not None else interval.low) <= 0


def least(values: Iterable[Value], meets: Callable[[Value], bool]) -> Value | None:
    """The least of rising values from which on all meet; None where the largest does not."""
    found = None
    for value in reversed([*values]):
        if not meets(value):
            break
        found = value
    return found


@dataclass(frozen=True)
class LeastFound:
    """Of one competitor at one combination of the other axes."""

    where: str
    name: str
    known: dict[str, Interval]
    """Value -> the metric, in rising order."""
    value: str | None
    """The least by the means; None where none is enough."""
    sure: str | None
    """The least by the whole intervals."""


def least_values(table: Table, path: str, order: Callable[[Any], float], kept: Constraint
                ) -> list[LeastFound]:  # fmt: skip
    """For each competitor at each combination of the axes other than `path`; order: where a value
    of that axis lies. A value that does not fit does not meet it."""
    found = []
    for where, groups in along(replace(table, groups=table.shown_groups()), path):
        groups = sorted(groups, key=lambda group: order(group.others[path]))
        for name in dict.fromkeys(row.name for group in groups for row in group.main()):
            rows = {
                label(group.others[path]): row
                for group in groups
                for row in group.main()
                if row.name == name
            }
            measured = {value: row.interval(kept.metric) for value, row in rows.items()}
            known = {value: each for value, each in measured.items() if each is not None}
            tried = [value for value, row in rows.items() if value in known or not row.replications]
            found.append(_least_of(where, name, tried, known, kept))
    return found


def _least_of(
    where: str, name: str, tried: list[str], known: dict[str, Interval], kept: Constraint
) -> LeastFound:  # fmt: skip
    if kept.metric.endswith(ATTAINMENT):
        known = {value: each.within(0.0, 1.0) for value, each in known.items()}

    def met(value: str) -> bool:
        return value in known and kept.violation(known[value].mean) <= 0

    by_mean = least(tried, met)
    surely = least(tried, lambda value: value in known and kept.surely(known[value]))
    return LeastFound(where, name, known, by_mean, surely)
