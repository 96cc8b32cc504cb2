"""Pools of equal blocks of a plain run, compiled, as `PartitionedPools` and `SizedPool` have them.
A pool is known by its number; the space of large reservations is `PlainRuns.kept`."""

from __future__ import annotations

from typing import Any

from hwmodel.kernel.jit import called
from policies.serving.plain.plain_holes import give, largest, take
from policies.serving.plain.plain_state import Holes, PlainPools, PlainRuns


@called
def _rest(p: PlainPools, pool: int) -> Holes:
    """What of a pool is in no block."""
    return Holes(p.rest_start[pool], p.rest_size[pool], p.rest_number[pool])


@called
def _cut(p: PlainPools, pool: int) -> None:
    """What can be cut is cut into free blocks, of which the lowest is taken first."""
    rest, size, first = _rest(p, pool), p.block[pool], p.free_at[pool] + p.free_count[pool]
    last, start = first, take(rest, size, False)
    while start >= 0:
        p.free[last] = start
        last += 1
        start = take(rest, size, False)
    p.free_count[pool] += last - first
    last -= 1
    while first < last:
        start = p.free[first]
        p.free[first] = p.free[last]
        p.free[last] = start
        first += 1
        last -= 1


@called
def _recut(p: PlainPools, pool: int) -> None:
    """All that is free is cut into blocks of the size to come."""
    rest, first = _rest(p, pool), p.free_at[pool]
    for at in range(first, first + p.free_count[pool]):
        give(rest, p.free[at], p.block[pool])
    p.free_count[pool] = 0
    p.block[pool] = p.next[pool]
    _cut(p, pool)


@called
def resize(rule: Any, p: PlainPools, nth: int) -> None:
    """Blocks are to have the nth sizes `wanted`."""
    for pool in range(len(p.block)):
        size = p.wanted[nth, pool]
        p.next[pool] = size
        if size != p.block[pool] and (rule.at_once or p.used[pool] == 0):
            _recut(p, pool)


@called
def _fits(p: PlainPools, pool: int, slots: int) -> bool:
    return slots <= p.block[pool] <= p.slots[pool]


@called
def size_of(p: PlainPools, slots: int) -> int:
    """Slots of the block that a reservation of so many would have; 0: none is as large."""
    least = 0
    for pool in range(len(p.block)):
        if _fits(p, pool, slots) and (least == 0 or p.block[pool] < least):
            least = p.block[pool]
    return least


@called
def place(s: Any, r: PlainRuns, request: int, slots: int, larger: bool) -> int:
    """A request has a block of the size that fits best, or with `larger` of the best that is free;
    its slots, 0 if there is none."""
    p, best = r.pools, -1
    wanted = size_of(p, slots)
    for pool in range(len(p.block)):
        fits = _fits(p, pool, slots) and (larger or p.block[pool] == wanted)
        if fits and p.free_count[pool] and (best < 0 or p.block[pool] < p.block[best]):
            best = pool
    if best < 0:
        return 0
    p.used[best] += 1
    p.free_count[best] -= 1
    r.start[request] = p.free[p.free_at[best] + p.free_count[best]]
    s.free_slots -= p.block[best]
    return p.block[best]


@called
def leave(p: PlainPools, start: int, size: int) -> None:
    """A block of any size that its pool once had is free."""
    pool = len(p.block) - 1
    while p.start[pool] > start:
        pool -= 1
    p.used[pool] -= 1
    if size == p.block[pool]:
        p.free[p.free_at[pool] + p.free_count[pool]] = start
        p.free_count[pool] += 1
    else:
        give(_rest(p, pool), start, size)
        _cut(p, pool)
    if p.used[pool] == 0 and (p.next[pool] != p.block[pool] or _stranded(p, pool) >= p.block[pool]):
        _recut(p, pool)


@called
def _stranded(p: PlainPools, pool: int) -> int:
    """Slots of a pool that are in no block."""
    slots = 0
    for hole in range(p.rest_number[pool, 0]):
        slots += p.rest_size[pool, hole]
    return slots


@called
def largest_block(p: PlainPools) -> int:
    """Slots of the largest free block."""
    most = 0
    for pool in range(len(p.block)):
        if p.free_count[pool]:
            most = max(most, p.block[pool])
    return most


@called
def lost(r: PlainRuns) -> int:
    """Free slots that no reservation can have (`PartitionedPools.fragmentation`)."""
    slots = -largest(r.kept)
    for hole in range(r.kept.number[0]):
        slots += r.kept.size[hole]
    for pool in range(len(r.pools.block)):
        slots += _stranded(r.pools, pool)
    return slots
