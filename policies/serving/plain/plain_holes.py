"""Holes of a space of slots, compiled, as `Arena` has them."""

from __future__ import annotations

from hwmodel.kernel.jit import called
from policies.serving.plain.plain_state import Holes


@called
def close_up(h: Holes, at: int, behind: int) -> None:
    """There are no holes from `at` to `behind` any more."""
    gone = behind - at
    h.number[0] -= gone
    for hole in range(at, h.number[0]):
        h.start[hole] = h.start[hole + gone]
        h.size[hole] = h.size[hole + gone]


@called
def largest(h: Holes) -> int:
    """Slots of the largest hole."""
    most = 0
    for hole in range(h.number[0]):
        most = max(most, h.size[hole])
    return most


@called
def take(h: Holes, size: int, best_fit: bool) -> int:
    """So many slots of the first hole that has them, or of the smallest one; the start, or -1."""
    at = -1
    for hole in range(h.number[0]):
        if h.size[hole] >= size and (at < 0 or h.size[hole] < h.size[at]):
            at = hole
            if not best_fit:
                break
    if at < 0:
        return -1
    start = h.start[at]
    if h.size[at] == size:
        close_up(h, at, at + 1)
    else:
        h.start[at] += size
        h.size[at] -= size
    return start


@called
def give(h: Holes, start: int, size: int) -> None:
    """These slots are free, and join the holes they touch."""
    at, holes, end = 0, h.number[0], start + size
    while at < holes and h.start[at] < start:
        at += 1
    before = at > 0 and h.start[at - 1] + h.size[at - 1] >= start
    after = at < holes and h.start[at] <= end
    if before and after:
        h.size[at - 1] += size + h.size[at]
        close_up(h, at, at + 1)
    elif before:
        h.size[at - 1] += size
    elif after:
        h.start[at] = start
        h.size[at] += size
    else:
        for hole in range(holes, at, -1):
            h.start[hole] = h.start[hole - 1]
            h.size[hole] = h.size[hole - 1]
        h.start[at] = start
        h.size[at] = size
        h.number[0] += 1
