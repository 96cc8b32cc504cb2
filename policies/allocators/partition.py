"""The bounds that reserve least for known lengths: `balance: least_unused`, and a limit of what
quantiles can reach.

A request of length x in a bucket of bound b holds b for as long as it lasts, which is about x
steps; x (b - x) of that is never used. (A request is taken to be in the smallest bucket that covers
it: no misprediction, no overflow.) Bounds are multiples of an alignment, so few bounds are
candidates, and the best B of them are found exactly: the optimal segmentation of a sorted list by
dynamic programming (Bellman 1961, "On the approximation of curves by line segments").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from policies.requests.requests import FloatArray, IntArray

_AT_ONCE = 512
"""Ends of segments that are looked at together, which bounds the memory taken."""


class Partition(NamedTuple):
    """Bounds in tokens, ascending, the last of which covers every length."""

    bounds: tuple[int, ...]
    levels: tuple[float, ...]
    """The share of the lengths that each bound covers."""
    unused: float
    """Share of what is reserved, over the time it is held, that no token ever fills."""


def best_partition(lengths: IntArray, buckets: int, align: int = 64) -> Partition:
    """The bounds with the least unused, at most `buckets` of them (fewer lengths need fewer).

    lengths: int64 (n,), at least 1 each. O(buckets m^2) for m multiples of `align` that some length
    needs.
    """
    needed = -(-lengths // align) * align
    bounds, place = np.unique(needed, return_inverse=True)
    held = np.bincount(place, lengths, len(bounds)).cumsum()  # token-steps up to each bound
    before = np.concatenate(([0.0], held))
    count = len(bounds)
    # least[j]: reserved for all lengths up to bound j, of which bound j - 1 is the last one chosen
    least: FloatArray = np.full(count + 1, np.inf)
    least[0] = 0.0
    froms: list[IntArray] = []
    for _ in range(min(buckets, count)):
        came, cheapest = np.zeros(count, np.int64), np.full(count + 1, np.inf)
        for begin in range(0, count, _AT_ONCE):
            ends = np.arange(begin, min(begin + _AT_ONCE, count))
            starts = np.arange(ends[-1] + 1)
            cost = least[starts] + bounds[ends, None] * (before[ends + 1, None] - before[starts])
            cost[starts > ends[:, None]] = np.inf  # a segment ends where it begins, or later
            came[ends], cheapest[ends + 1] = cost.argmin(axis=1), cost.min(axis=1)
        froms.append(came)
        least = cheapest
    chosen, end = [], count
    for came in reversed(froms):
        chosen.append(int(bounds[end - 1]))
        end = int(came[end - 1])
    found = tuple(reversed(chosen))
    levels = tuple(float((lengths <= bound).mean()) for bound in found)
    return Partition(found, levels, unused_share(lengths, found, found[-1]))


def unused_share(lengths: IntArray, bounds: Sequence[int], large: int) -> float:
    """Share of what is reserved in these buckets, over the time it is held, that stays unused.
    Lengths above the last bound reserve `large`."""
    reserved = np.append(np.asarray(bounds), large)[np.searchsorted(bounds, lengths)]
    return float(1 - (lengths * lengths).sum() / (lengths * reserved).sum())
