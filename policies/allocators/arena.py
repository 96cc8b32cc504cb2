"""A contiguous space of token slots: first, next or best fit, splitting, coalescing.

Knuth, The Art of Computer Programming vol. 1, 2.5 (dynamic storage allocation).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

from policies.allocators.places import Place

Fit = Literal["first", "next", "best"]


class Arena:
    """Slots [start, start + size). Holes are kept sorted by address and never touch each other."""

    def __init__(self, start: int, size: int, fit: Fit = "first") -> None:
        if size < 0:
            raise ValueError("an arena cannot have a negative size")
        self.start = start
        self.size = size
        self.fit = fit
        self.free = size
        """Free slots."""
        self._last = start
        """Where the last allocation ended, from which next fit goes on."""
        self._starts: list[int] = [start] if size else []
        self._sizes: list[int] = [size] if size else []
        self._largest: int | None = size
        """Of the holes; None: not known since they changed."""

    @property
    def largest_hole(self) -> int:
        """Slots of the largest contiguous hole."""
        if self._largest is None:
            self._largest = max(self._sizes, default=0)
        return self._largest

    @property
    def holes(self) -> list[tuple[int, int]]:
        """(start, slots) of every hole, by address."""
        return list(zip(self._starts, self._sizes, strict=True))

    def take(self, size: int) -> int | None:
        """Allocate `size` contiguous slots; their start, or None (nothing changes) if no hole
        fits."""
        if size < 1:
            raise ValueError("an allocation has at least one slot")
        at = self._choose(size)
        if at is None:
            return None
        if self.fit == "next" and self._behind(at) >= size:
            at = self._part(at)
        self._largest = None
        start = self._starts[at]
        if self._sizes[at] == size:
            del self._starts[at], self._sizes[at]
        else:
            self._starts[at] += size
            self._sizes[at] -= size
        self.free -= size
        self._last = start + size
        return start

    def place(self, slots: int) -> Place | None:
        """As `take`, as a place."""
        start = self.take(slots)
        return None if start is None else Place(start, slots)

    def give_back(self, start: int, size: int) -> None:
        """Free the slots [start, start + size), joining the holes they touch.

        Raises ValueError if any of them is already free or lies outside.
        """
        at = bisect_left(self._starts, start)
        end = start + size
        before = at > 0 and self._starts[at - 1] + self._sizes[at - 1] >= start
        after = at < len(self._starts) and self._starts[at] <= end
        inside = self.start <= start and end <= self.start + self.size and size > 0
        overlaps = (before and self._starts[at - 1] + self._sizes[at - 1] > start) or (
            after and self._starts[at] < end
        )
        if overlaps or not inside:
            raise ValueError(f"slots [{start}, {end}) are not allocated")
        self.free += size
        self._largest = None
        if before and after:
            self._sizes[at - 1] += size + self._sizes[at]
            del self._starts[at], self._sizes[at]
        elif before:
            self._sizes[at - 1] += size
        elif after:
            self._starts[at] = start
            self._sizes[at] += size
        else:
            self._starts.insert(at, start)
            self._sizes.insert(at, size)

    def join(self, first: int, last: int) -> None:
        """The holes `first` to `last`, by address, are one at the end of the last: what was
        allocated between them has moved down."""
        size = sum(self._sizes[first : last + 1])
        end = self._starts[last] + self._sizes[last]
        self._largest = None
        self._starts[first : last + 1] = [end - size]
        self._sizes[first : last + 1] = [size]

    def _choose(self, size: int) -> int | None:
        """Index of the hole that the fit rule takes."""
        if self.fit == "next":
            at = bisect_left(self._starts, self._last)
            if at and self._behind(at - 1) >= size:
                return at - 1
            order = (*range(at, len(self._sizes)), *range(at))
            return next((i for i in order if self._sizes[i] >= size), None)
        if self.fit == "first":
            return next((i for i, hole in enumerate(self._sizes) if hole >= size), None)
        fitting = [(hole, i) for i, hole in enumerate(self._sizes) if hole >= size]
        return min(fitting)[1] if fitting else None

    def _behind(self, at: int) -> int:
        """Slots of a hole behind the last allocation, if that ended inside it; else 0 or less."""
        inside = self._last - self._starts[at]
        return self._sizes[at] - inside if inside > 0 else 0

    def _part(self, at: int) -> int:
        """Part a hole where the last allocation ended; the index of the upper part."""
        inside = self._last - self._starts[at]
        self._starts.insert(at + 1, self._last)
        self._sizes[at : at + 1] = [inside, self._sizes[at] - inside]
        return at + 1


def external_fragmentation(free: int, largest: int) -> float:
    """Share of the free slots that lies outside the largest hole (0: all free space is one
    hole)."""
    return 1 - largest / free if free else 0.0
