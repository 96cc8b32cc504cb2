"""Pages dealt to memories in turn."""

from __future__ import annotations

import numpy as np

from policies.placements.placement import FloatArray, IntArray, PlacedExtents, joined

MOST_TURNS = 32
"""Pages of a turn at most, over which the shares are approached (assumed)."""


class Turn:
    """Page p lies in the memory at its place in the turn, and there behind those before it.
    owner: the memory of each page of a turn, of so many `memories`, int64 (n,); page: bytes."""

    def __init__(self, owner: IntArray, memories: int, page: int) -> None:
        self._owner, self._page = owner, page
        self._counts = np.bincount(owner, minlength=memories)
        of_each = owner == np.arange(len(self._counts))[:, None]
        self._before = np.cumsum(of_each, axis=1) - of_each
        """Pages of each memory before a place of the turn."""

    @property
    def shares(self) -> FloatArray:
        """Of all pages, those of each memory."""
        shares: FloatArray = self._counts / self._counts.sum()
        return shares

    def part(self, start: IntArray, size: IntArray, own: int) -> PlacedExtents:
        """What extents have in a memory."""
        page = self._page
        first, last = start // page, (start + size - 1) // page
        counts = last - first + 1
        source = np.repeat(np.arange(len(start)), counts)
        nth = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        number = first[source] + nth
        turn, place = np.divmod(number, len(self._owner))
        mine = self._owner[place] == own
        source, number, turn, place = source[mine], number[mine], turn[mine], place[mine]
        low = np.maximum(start[source], number * page)
        high = np.minimum((start + size)[source], (number + 1) * page)
        moved = turn * self._counts[own] + self._before[own, place]
        return joined(moved * page + low - number * page, high - low, source)


def nearest_turn(wanted: list[float]) -> list[int]:
    """Whole pages of each memory in a turn, the shortest whose shares are nearest."""
    shares = np.array(wanted) / sum(wanted)

    def rounded(pages: int) -> list[int]:
        return [round(float(each)) for each in shares * pages]

    def off(pages: int) -> float:
        found = np.array(rounded(pages), np.float64)
        if not found.all():
            return np.inf
        return float(np.max(found / found.sum() / shares))

    return rounded(min(range(len(wanted), MOST_TURNS + 1), key=lambda pages: (off(pages), pages)))


def dealt(counts: list[int]) -> IntArray:
    """The memory of each page of a turn, spread as evenly as they go."""
    due = np.concatenate([(np.arange(n) + 0.5) / n for n in counts if n])
    own: IntArray = np.repeat(np.arange(len(counts)), np.array(counts, np.int64))
    return own[np.argsort(due, kind="stable")]
