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
from policies.placements.turn import Turn

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
        self._names = list(turn)
        self._turn = Turn(_dealt(list(turn.values())), len(turn), options.page)

    def held(self, what: What, space: Space) -> dict[str, float]:
        if what not in self.options.what:
            return {MAIN: 1.0}
        shares = zip(self._names, self._turn.shares, strict=True)
        return {name: float(each) for name, each in shares if each}

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        if what not in self.options.what:
            return whole(start, size) if memory == MAIN else none()
        if memory not in self._names:
            return none()
        return self._turn.part(start, size, self._names.index(memory))


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


def _dealt(counts: list[int]) -> IntArray:
    """The memory of each page of a turn, spread as evenly as they go."""
    due = np.concatenate([(np.arange(n) + 0.5) / n for n in counts if n])
    own: IntArray = np.repeat(np.arange(len(counts)), np.array(counts, np.int64))
    return own[np.argsort(due, kind="stable")]
