"""Shares and rates that were measured with reads, or messages, of some sizes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, TypeVar

from pydantic import Field

from hwmodel.description.description import Strict
from hwmodel.description.units import BytesPerSecond, PositiveBytes

Sized = TypeVar("Sized", "SizedShare", "SizedRate")
Share = Annotated[float, Field(gt=0, le=1)]


class SizedShare(Strict):
    """A share that was measured with reads of one size."""

    size: PositiveBytes
    """Of what is read in a layer."""
    share: Share
    """Of the peak at that size."""


class SizedRate(Strict):
    """A rate that was measured with messages of one size."""

    size: PositiveBytes
    """Of what is reduced."""
    rate: Annotated[BytesPerSecond, Field(gt=0)]
    """Bytes that are reduced, of each card, over the time that it takes."""


def rising(points: list[Sized]) -> list[Sized]:
    """The points, whose sizes have to rise. Raises ValueError."""
    sizes = [each.size for each in points]
    if not sizes or sizes != sorted(set(sizes)):
        raise ValueError("expected sizes that rise")
    return points


def by_size(points: list[tuple[int, float]], size_bytes: float) -> float:
    """A value measured at rising sizes: between two in proportion to the logarithms of the sizes,
    beyond them as at the last."""
    for (low, at_low), (high, at_high) in pairwise(points):
        if size_bytes < high:
            share = math.log(max(size_bytes, low) / low) / math.log(high / low)
            return at_low + share * (at_high - at_low)
    return points[-1][1]
