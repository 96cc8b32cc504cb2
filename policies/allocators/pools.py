"""Where the reservations of buckets lie: one space for all, or a pool of equal blocks for each.

One space is an arena with holes, or slabs that are cut on demand (`policies.allocators.slabs`).

A pool is cut into blocks of its bucket's size with a free list: nothing is split or joined, so
there is no external fragmentation. When the bounds move, space that no longer divides is stranded.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal, Protocol

from policies.allocators.arena import Arena, Fit, external_fragmentation
from policies.allocators.places import Place, SpaceKind
from policies.allocators.slabs import BORROW, space

Repartition = Literal["never", "when_empty", "on_refresh"]
Split = Literal["slots", "blocks", "demand"]


class Pools(Protocol):
    """Places for bucket reservations, and for large ones."""

    @property
    def free(self) -> int:
        """Slots no reservation holds."""

    @property
    def largest_hole(self) -> int:
        """Slots of the largest reservation that could succeed now."""

    @property
    def fragmentation(self) -> float:
        """Share of the free slots that no reservation can have."""

    @property
    def reach(self) -> int:
        """Slots of the largest reservation when empty."""

    def size(self, slots: int) -> int:
        """Slots that a bucket reservation of `slots` holds; 0 if the empty pools have no place."""

    def place(self, slots: int, larger: bool = False) -> Place | None:
        """A bucket reservation; with `larger`, in a larger block where those that fit best are
        taken. None (nothing changes) if there is no room."""

    def place_large(self, slots: int) -> Place | None:
        """A large reservation. None (nothing changes) if there is no room."""

    def arenas(self, large: bool) -> list[Arena]:
        """The spaces that a bucket reservation, or a large one, may lie in, in the order in which
        they are tried, as far as runs of any size lie there."""

    def give_back(self, place: Place) -> None:
        """Free a place."""

    def resize(self, sizes: Sequence[int]) -> None:
        """Buckets have these new sizes, in slots."""


class SharedPools:
    """One contiguous space of `slots` for all buckets, and one of `kept` slots behind it for large
    reservations; they share where nothing is kept. overflow: a large one for which its own space
    has no room lies in the common one."""

    def __init__(
        self, slots: int, kept: int, fit: Fit, kind: SpaceKind = "arena", borrow: float = BORROW,
        *, overflow: bool = False,
    ) -> None:  # fmt: skip
        self._all = space(kind, 0, slots, fit, borrow)
        self._large = Arena(slots, kept, fit) if kept else self._all
        self._spaces_of_large = [self._large]
        if overflow and kept:
            self._spaces_of_large.append(self._all)

    @property
    def free(self) -> int:
        return self._all.free + (self._large.free if self._large is not self._all else 0)

    @property
    def largest_hole(self) -> int:
        return max(self._all.largest_hole, self._large.largest_hole)

    @property
    def fragmentation(self) -> float:
        return external_fragmentation(self.free, self.largest_hole)

    @property
    def reach(self) -> int:
        return max(space.size for space in self._spaces_of_large)

    def size(self, slots: int) -> int:
        return slots if slots <= self._all.size else 0

    def place(self, slots: int, larger: bool = False) -> Place | None:
        return self._all.place(slots)

    def place_large(self, slots: int) -> Place | None:
        places = (space.place(slots) for space in self._spaces_of_large)
        return next((place for place in places if place is not None), None)

    def arenas(self, large: bool) -> list[Arena]:
        spaces = self._spaces_of_large if large else [self._all]
        return [space for space in spaces if isinstance(space, Arena)]

    def give_back(self, place: Place) -> None:
        (self._large if place.start >= self._large.start else self._all).give_back(*place)

    def resize(self, sizes: Sequence[int]) -> None:
        """One space has no sizes."""


class SizedPool:
    """Slots [start, start + slots) cut into blocks of `block` slots. What cannot be cut, because it
    is too short or lies between blocks of an older size, is stranded."""

    def __init__(self, start: int, slots: int, block: int) -> None:
        self.start = start
        self.slots = slots
        self.block = block
        self.used = 0
        """Blocks that are taken, of any size."""
        self._next = block
        self._rest = Arena(start, slots)
        self._free: list[int] = []  # starts of free blocks; the last is the next one taken
        self._cut()

    @property
    def stranded(self) -> int:
        """Free slots that are in no block."""
        return self._rest.free

    @property
    def free(self) -> int:
        return self._rest.free + len(self._free) * self.block

    @property
    def has_block(self) -> bool:
        return bool(self._free)

    def take(self) -> Place | None:
        """A block, or None if there is none."""
        if not self._free:
            return None
        self.used += 1
        return Place(self._free.pop(), self.block)

    def give_back(self, place: Place) -> None:
        """Free a block of any size that this pool once had."""
        self.used -= 1
        if place.size == self.block:
            self._free.append(place.start)
        else:
            self._rest.give_back(*place)
            self._cut()
        if not self.used and (self._next != self.block or self._rest.free >= self.block):
            self._recut()

    def resize(self, block: int, at_once: bool) -> None:
        """Cut blocks of a new size out of what is free, at once or when all is free."""
        self._next = block
        if block != self.block and (at_once or not self.used):
            self._recut()

    def _recut(self) -> None:
        for start in self._free:
            self._rest.give_back(start, self.block)
        self._free.clear()
        self.block = self._next
        self._cut()

    def _cut(self) -> None:
        starts = []
        while (start := self._rest.take(self.block)) is not None:
            starts.append(start)
        self._free += reversed(starts)


class PartitionedPools:
    """A pool for each size of `sizes`, and `kept` slots at the end, with splitting and joining, for
    the large reservations, which differ in size.

    split: pools have equally many slots at first, or equally many blocks, or slots by what equally
    many requests hold that stay as long as their block is (its square); they keep their slots when
    sizes change. repartition: when they are cut anew after that. overflow: a large reservation for
    which there is no room takes a free block that covers it. All assumed.
    """

    def __init__(
        self, slots: int, kept: int, sizes: Sequence[int], *, split: Split = "slots",
        repartition: Repartition = "on_refresh", align: int = 1, fit: Fit = "first",
        overflow: bool = False,
    ) -> None:  # fmt: skip
        self.repartition = repartition
        self.overflow = overflow
        power = ("slots", "blocks", "demand").index(split)
        weights = [size**power for size in sizes]
        self._pools: list[SizedPool] = []
        start = 0
        for size, weight in zip(sizes, weights, strict=True):
            part = (slots - kept) * weight // sum(weights) // align * align
            self._pools.append(SizedPool(start, part, size))
            start += part
        self._large = Arena(start, slots - start, fit)
        self._starts = [pool.start for pool in self._pools]

    @property
    def free(self) -> int:
        return self._large.free + sum(pool.free for pool in self._pools)

    @property
    def largest_hole(self) -> int:
        blocks = (pool.block for pool in self._pools if pool.has_block)
        return max(self._large.largest_hole, *blocks, 0)

    @property
    def fragmentation(self) -> float:
        free = self.free
        lost = self._large.free - self._large.largest_hole
        return (lost + sum(pool.stranded for pool in self._pools)) / free if free else 0.0

    @property
    def reach(self) -> int:
        return self._large.size  # blocks may be smaller after the next change of the bounds

    def size(self, slots: int) -> int:
        return min((pool.block for pool in self._fitting(slots)), default=0)

    def place(self, slots: int, larger: bool = False) -> Place | None:
        pools = self._fitting(slots)
        if pools and not larger:
            smallest = min(pool.block for pool in pools)
            pools = [pool for pool in pools if pool.block == smallest]
        ready = [pool for pool in pools if pool.has_block]
        return min(ready, key=lambda pool: pool.block).take() if ready else None

    def place_large(self, slots: int) -> Place | None:
        place = self._large.place(slots)
        return self.place(slots, larger=True) if place is None and self.overflow else place

    def arenas(self, large: bool) -> list[Arena]:
        return []

    def give_back(self, place: Place) -> None:
        if place.start >= self._large.start:
            self._large.give_back(*place)
        else:
            self._pools[bisect_right(self._starts, place.start) - 1].give_back(place)

    def resize(self, sizes: Sequence[int]) -> None:
        if self.repartition != "never":
            for pool, size in zip(self._pools, sizes, strict=True):
                pool.resize(size, at_once=self.repartition == "on_refresh")

    def _fitting(self, slots: int) -> list[SizedPool]:
        """Pools whose blocks are large enough, and that have one when empty."""
        return [pool for pool in self._pools if slots <= pool.block <= pool.slots]
