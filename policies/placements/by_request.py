"""The first token slots in the main memory, the others in another one: a request is where its slots
are.

An allocator that gives a request one run has all of it in one memory, but for the one at the bound;
where it takes the lowest hole, new requests come into the main memory until it is full. Blocks lie
in either as they come free: lowest first with `free_list: sorted`. A request that is moved by
compaction, or from a pool into a bucket, may come into the other memory: its tokens are read in one
and written in the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError
from policies.placements.placement import (
    MAIN,
    Batch,
    Extents,
    IntArray,
    Placement,
    PlacementOptions,
    Space,
    Supply,
    What,
    cut,
    none,
    whole,
)


class ByRequestOptions(PlacementOptions):
    """Options of `by_request`."""

    name: Literal["by_request"] = "by_request"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str
    """The memory that has the last slots."""
    share: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Of the slots, those in it. None: as the capacities beside the weights are."""


class ByRequest(Placement):
    """See the module."""

    Options: ClassVar[type[PlacementOptions]] = ByRequestOptions
    grows = True

    def __init__(self, options: Any, supplies: Mapping[str, Supply]) -> None:
        super().__init__(options, supplies)
        self._known("weights", options.weights)
        self._elsewhere("kv", options.kv, "the first slots lie")

    def held(self, what: What, space: Space) -> dict[str, float]:
        if what == "weights":
            return {self.options.weights: 1.0}
        far = self._far(space)
        return {MAIN: 1.0 - far, self.options.kv: far}

    def read(self, what: What, space: Space, batch: Batch | None = None) -> dict[str, float]:
        if what == "weights" or batch is None:
            return self.held(what, space)
        start, tokens = batch.units()
        if not (total := int(tokens.sum())):
            return self.held(what, space)
        near = float(np.clip(self._bound(space) - start, 0, tokens).sum() / total)
        return {MAIN: near, self.options.kv: 1.0 - near}

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        if what == "weights":
            return whole(start, size) if memory == self.options.weights else none()
        if memory not in (MAIN, self.options.kv):
            return none()
        bound, run = self._bound(space), self._run(space)
        plane = np.arange(space.slots * space.slot_bytes // (space.slots * run), dtype=np.int64)
        near, far = bound * run, (space.slots - bound) * run
        edges = np.stack((plane * (near + far), plane * (near + far) + near), 1)
        moved = np.full(edges.shape, -1)
        own = int(memory != MAIN)
        moved[:, own] = plane * (far if own else near)
        return cut(start, size, edges.ravel(), moved.ravel())

    def _far(self, space: Space) -> float:
        """The share of the slots in the other memory."""
        if (share := self.options.share) is not None:
            return float(share)
        left = {name: self.supplies[name].capacity_bytes for name in (MAIN, self.options.kv)}
        if self.options.weights in left:
            left[self.options.weights] -= space.weight_bytes
        near, far = (max(each, 1) for each in left.values())
        return far / (near + far)

    def _bound(self, space: Space) -> int:
        """Slots of the main memory."""
        return space.slots - round(space.slots * self._far(space))

    def _run(self, space: Space) -> int:
        if space.run_bytes is None:
            raise DescriptionError(
                "memories: by_request needs all KV of a slot in the layout's own planes; expected"
                " a format of KV without scales beside it, and no index of tokens"
            )
        return space.run_bytes
