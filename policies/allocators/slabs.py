"""Slabs: one space cut on demand into runs of equal blocks, with a free list for each size.

A block comes from the free list of its size; else a slab is cut from the common space; else a free
larger block is borrowed. A slab whose blocks are all free goes back to the common space, where it
joins the holes it touches, so that room moves from size to size with the demand. Bonwick 1994
("The slab allocator"); how many blocks a slab has, and what may be borrowed, are assumed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from typing import NamedTuple

from policies.allocators.arena import Arena, Fit
from policies.allocators.places import Place, SpaceKind

SPLIT = 4
"""A new slab has a block, and one more for each so many blocks of its size in use (assumed)."""
MOST = 8
"""Blocks of a slab, at most (assumed)."""
BORROW = 2.0
"""A block is borrowed that has at most this many times the slots asked for (assumed)."""


class _Slab(NamedTuple):
    """`blocks` blocks of `size` slots, and the starts of those that are free, highest first."""

    size: int
    blocks: int
    free: list[int]


class Slabs:
    """Slots [start, start + size). Slabs and holes of the common space part them."""

    def __init__(self, start: int, size: int, fit: Fit = "first", borrow: float = BORROW) -> None:
        self.start = start
        self.size = size
        self.free = size
        """Slots that no block in use holds."""
        self._common = Arena(start, size, fit)
        self._borrow = borrow
        self._slabs: dict[int, _Slab] = {}  # by start
        self._slab_of: dict[int, int] = {}  # start of a block in use -> start of its slab
        self._ready: dict[int, list[int]] = {}  # size -> starts of slabs with a free block, rising
        self._used: Counter[int] = Counter()  # blocks in use by size

    @property
    def largest_hole(self) -> int:
        """Slots of the largest hole of the common space, or of a larger free block."""
        return max(self._common.largest_hole, *self._ready, 0)

    @property
    def slabs(self) -> list[tuple[int, int, int]]:
        """(start, slots of a block, blocks) of each slab, by address."""
        return [(start, slab.size, slab.blocks) for start, slab in sorted(self._slabs.items())]

    @property
    def holes(self) -> list[tuple[int, int]]:
        """(start, slots) of every hole of the common space, by address."""
        return self._common.holes

    def place(self, slots: int) -> Place | None:
        """A block of `slots` slots, or a larger one that is borrowed; None (nothing changes) if
        there is none. Raises ValueError for less than a slot."""
        if slots in self._ready or self._cut(slots):
            return self._take(slots)
        most = self._borrow * slots
        larger = min((size for size in self._ready if slots < size <= most), default=0)
        return self._take(larger) if larger else None

    def give_back(self, start: int, size: int) -> None:
        """Free a block of this size. Raises ValueError if it is not in use."""
        first = self._slab_of.get(start)
        if first is None or (slab := self._slabs[first]).size != size:
            raise ValueError(f"slots [{start}, {start + size}) are no block in use")
        del self._slab_of[start]
        self.free += size
        self._used[size] -= 1
        insort(slab.free, start, key=lambda place: -place)
        if len(slab.free) == 1:
            insort(self._ready.setdefault(size, []), first)
        if len(slab.free) == slab.blocks:
            del self._slabs[first]
            self._leave(size, first)
            self._common.give_back(first, size * slab.blocks)

    def _cut(self, size: int) -> bool:
        """Cut a slab for blocks of `size`, with fewer blocks where there is less room; whether
        there was any."""
        blocks, room = min(1 + self._used[size] // SPLIT, MOST), self._common.largest_hole
        while size * blocks > room:
            blocks //= 2
        if not blocks or (start := self._common.take(size * blocks)) is None:
            return False
        free = [start + nth * size for nth in reversed(range(blocks))]
        self._slabs[start] = _Slab(size, blocks, free)
        self._ready[size] = [start]
        return True

    def _take(self, size: int) -> Place:
        """The lowest free block of a size that has one."""
        first = self._ready[size][0]
        slab = self._slabs[first]
        start = slab.free.pop()
        if not slab.free:
            self._leave(size, first)
        self._slab_of[start] = first
        self._used[size] += 1
        self.free -= size
        return Place(start, size)

    def _leave(self, size: int, first: int) -> None:
        """A slab has no free block, or is no more."""
        ready = self._ready[size]
        del ready[bisect_left(ready, first)]
        if not ready:
            del self._ready[size]


def space(
    kind: SpaceKind, start: int, size: int, fit: Fit, borrow: float = BORROW
) -> Arena | Slabs:
    """The empty slots [start, start + size)."""
    return Slabs(start, size, fit, borrow) if kind == "slabs" else Arena(start, size, fit)
