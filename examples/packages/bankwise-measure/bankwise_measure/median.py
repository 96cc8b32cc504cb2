"""The median of repeated measurements, and an interval for it that assumes no distribution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hwmodel.measure.student import LEVEL


@dataclass(frozen=True)
class Median:
    """The median of values, and two of them between which the true one lies."""

    value: float
    low: float
    high: float
    count: int

    @property
    def spread(self) -> float:
        """Half the interval over the median."""
        return (self.high - self.low) / 2 / self.value


def coverage(count: int, left_out: int) -> float:
    """How likely the true median is between two order statistics of `count` independent values,
    `left_out` of them outside at either end."""
    outside = sum(math.comb(count, k) for k in range(left_out + 1))
    return 1 - 2 * outside / 2**count


def median(values: Sequence[float]) -> Median:
    """Of at least one value; the interval is the narrowest of order statistics that covers `LEVEL`,
    least and most where all of them do not (below six)."""
    if not values:
        raise ValueError("no values")
    ordered, count = sorted(values), len(values)
    cut = 0
    while coverage(count, cut + 1) >= LEVEL:
        cut += 1
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Median(middle, ordered[cut], ordered[count - 1 - cut], count)
