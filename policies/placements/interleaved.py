"""Pages of weights and KV dealt to the memories in turn, in proportion to their bandwidths.

So several memories read as one whose bandwidth is their sum, as far as the pages of what is read at
a time come out even; what decides is the memory whose share takes the longest. The weighted
interleaving of Linux deals pages to nodes in the same way (`mempolicy`, MPOL_WEIGHTED_INTERLEAVE).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import PositiveBytes
from policies.placements.placement import (
    MAIN,
    Extents,
    IntArray,
    Placement,
    PlacementOptions,
    Space,
    Supply,
    What,
    none,
    whole,
)

MOST_TURNS = 32
"""Pages of a turn at most, over which the shares are approached (assumed)."""


class InterleavedOptions(PlacementOptions):
    """Options of `interleaved`."""

    name: Literal["interleaved"] = "interleaved"
    what: list[What] = ["weights", "kv"]
    """What is interleaved; the rest lies in the main memory."""
    by: Literal["bandwidth", "capacity"] | dict[str, Annotated[int, Field(ge=0)]] = "bandwidth"
    """In proportion to what; or the pages of each memory in a turn."""
    page: PositiveBytes = 4 << 10
    """Consecutive bytes that lie in one memory (assumed: the host's page)."""


class Interleaved(Placement):
    """Page p of the weights, or of the KV, lies in the memory whose place in the turn it is."""

    Options: ClassVar[type[PlacementOptions]] = InterleavedOptions

    def __init__(self, options: Any, supplies: Mapping[str, Supply]) -> None:
        super().__init__(options, supplies)
        turn = options.by
        if isinstance(turn, str):
            wanted = [
                each.bandwidth if turn == "bandwidth" else each.capacity_bytes
                for each in supplies.values()
            ]
            turn = dict(zip(supplies, _turn(wanted), strict=True))
        for name in turn:
            self._known("by", name)
        if not any(turn.values()):
            raise DescriptionError("memories.by: no memory has a page; expected one at least")
        owner, counts = _dealt(list(turn.values()))
        self._names = list(turn)
        self._owner, self._counts = owner, counts
        before = np.zeros((len(counts), len(owner)), np.int64)
        for place, own in enumerate(owner[:-1]):
            before[:, place + 1] = before[:, place] + (np.arange(len(counts)) == own)
        self._before = before
        """Pages of each memory before a place of the turn."""

    def held(self, what: What) -> dict[str, float]:
        if what not in self.options.what:
            return {MAIN: 1.0}
        shares = self._counts / self._counts.sum()
        return {name: float(each) for name, each in zip(self._names, shares, strict=True) if each}

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        if what not in self.options.what:
            return whole(start, size) if memory == MAIN else none()
        if memory not in self._names:
            return none()
        page, own = self.options.page, self._names.index(memory)
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
        return _joined(moved * page + low - number * page, high - low, source)


def _joined(start: IntArray, size: IntArray, source: IntArray) -> Extents:
    """Pages of an extent that touch in their memory are one."""
    if not len(start):
        return none()
    apart = (start[1:] != (start + size)[:-1]) | (source[1:] != source[:-1])
    first = np.flatnonzero(np.concatenate(([True], apart)))
    return Extents(start[first], np.add.reduceat(size, first), source[first])


def _turn(wanted: list[float]) -> list[int]:
    """Whole pages of each memory in a turn, the shortest whose shares are nearest."""
    shares = np.array(wanted) / sum(wanted)

    def dealt(pages: int) -> list[int]:
        return [round(float(each)) for each in shares * pages]

    def off(pages: int) -> float:
        found = np.array(dealt(pages), np.float64)
        if not found.all():
            return np.inf
        return float(np.max(found / found.sum() / shares))

    return dealt(min(range(len(wanted), MOST_TURNS + 1), key=lambda pages: (off(pages), pages)))


def _dealt(counts: list[int]) -> tuple[IntArray, IntArray]:
    """(the memory of each page of a turn, pages of each), spread as evenly as they go."""
    many = np.array(counts, np.int64)
    due = np.concatenate([(np.arange(n) + 0.5) / n for n in counts if n])
    own = np.repeat(np.arange(len(counts)), many)
    return own[np.argsort(due, kind="stable")], many
