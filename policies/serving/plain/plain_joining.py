"""Compaction of a plain run, compiled: runs slide down until holes are one, as
`policies.allocators.compaction` and `Joining` have it."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain.plain_holes import close_up
from policies.serving.plain.plain_state import Holes, PlainQueue, PlainRequests, PlainRuns

COPIED = 2
"""Of `rule.joins`: the copies are charged; 1: they cost nothing; 0: holes stay."""


@called
def _between(s: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns, h: Holes) -> None:
    """`gaps`: of each hole, slots of the runs between it and the next one, and their tokens. Who
    is admitted in this step has stored nothing yet."""
    holes = h.number[0]
    for gap in range(holes):
        r.gaps[gap, 0] = r.gaps[gap, 1] = 0
    for place in range(s.running):
        request = c.batch[place]
        gap = _below(h, r.start[request])
        if 0 <= gap < holes - 1:
            r.gaps[gap, 0] += q.reserved[request]
            if place < s.before:
                r.gaps[gap, 1] += q.stored[request]


@called
def _below(h: Holes, start: int) -> int:
    """The last hole that begins at `start` or below; -1: none."""
    low, high = 0, h.number[0]
    while low < high:
        middle = (low + high) // 2
        if h.start[middle] <= start:
            low = middle + 1
        else:
            high = middle
    return low - 1


@called
def _cheapest(s: Any, rule: Any, r: PlainRuns, h: Holes, size: int) -> bool:
    """`window`: the first and the last of neighbouring holes that have so many slots together and
    the fewest tokens between them, the lowest of equals; whether there are any."""
    holes, best = h.number[0], -1
    for first in range(holes):
        last, slots, price = first, h.size[first], 0
        while slots < size and (best < 0 or price < best):
            end = h.start[last] + h.size[last]
            if last + 1 == holes or r.gaps[last, 0] != h.start[last + 1] - end:
                break  # behind the last one, or what does not move
            price += r.gaps[last, 1]
            last += 1
            slots += h.size[last]
        if slots >= size and (best < 0 or price < best):
            best = price
            r.window[0] = first
            r.window[1] = last
    return best >= 0 and (rule.joins_most < 0 or best <= rule.joins_most)


@called
def join(
    s: Any, rule: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns, h: Holes, size: int
) -> bool:
    """Make one hole of at least so many slots; whether there is one."""
    free = 0
    for hole in range(h.number[0]):
        free += h.size[hole]
    if size > free:
        return False
    _between(s, q, c, r, h)
    if not _cheapest(s, rule, r, h, size):
        return False
    first, last = r.window[0], r.window[1]
    count = 0
    for place in range(s.running):  # by address
        start = r.start[c.batch[place]]
        if first <= _below(h, start) < last:
            at = count
            while at > 0 and r.start[c.batch[r.order[at - 1]]] > start:
                r.order[at] = r.order[at - 1]
                at -= 1
            r.order[at] = place
            count += 1
    target, slots = h.start[first], 0
    for nth in range(count):
        place = r.order[nth]
        request = c.batch[place]
        if rule.joins == COPIED and place < s.before and r.slid_from[request] < 0:
            r.slid_from[request] = r.start[request]
            r.slid[s.slid] = request
            s.slid += 1
        r.start[request] = target
        target += q.reserved[request]
    for hole in range(first, last + 1):
        slots += h.size[hole]
    end = h.start[last] + h.size[last]
    h.start[first] = end - slots
    h.size[first] = slots
    close_up(h, first + 1, last + 1)
    return True


@called
def moved(s: Any, q: PlainRequests, c: PlainQueue, r: PlainRuns) -> None:
    """The copies of those that slid in this step."""
    for nth in range(s.slid):
        request = r.slid[nth]
        source = r.slid_from[request]
        r.slid_from[request] = -1
        if source == r.start[request]:
            continue
        move = c.moves[s.moves]
        move[0] = request
        move[1] = source
        move[2] = r.start[request]
        move[3] = q.stored[request]
        move[4] = q.reserved[request]
        s.moves += 1
    s.slid = 0
