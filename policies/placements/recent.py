"""The last tokens of each request in the main memory, all of its KV in another one.

The main memory is a cache of what is newest, written through: a new token's KV goes to both, and
what leaves the cache lies in the other memory already, so that nothing is moved. Attention reads
the last tokens in the main memory and those before them in the other. The main memory keeps room
for as many sequences as may run at once. The second write of a token is not counted: it is one
beside the thousands that its step reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

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
    none,
    whole,
)


class RecentOptions(PlacementOptions):
    """Options of `recent`."""

    name: Literal["recent"] = "recent"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str
    """The memory that has all KV."""
    tokens: Annotated[int, Field(ge=1)]
    """Of each request that the main memory has as well."""


class Recent(Placement):
    """See the module."""

    Options: ClassVar[type[PlacementOptions]] = RecentOptions
    grows = True

    def __init__(self, options: Any, supplies: Mapping[str, Supply]) -> None:
        super().__init__(options, supplies)
        self._known("weights", options.weights)
        self._elsewhere("kv", options.kv, "the last tokens lie")

    def held(self, what: What, space: Space) -> dict[str, float]:
        return {self.options.weights if what == "weights" else self.options.kv: 1.0}

    def kept(self, slot_bytes: int, sequences: int) -> dict[str, int]:
        return {MAIN: sequences * self.options.tokens * slot_bytes}

    def read(self, what: What, space: Space, batch: Batch | None = None) -> dict[str, float]:
        if what == "weights":
            return self.held(what, space)
        if batch is None or not len(batch.tokens):
            return {MAIN: 0.0, self.options.kv: 1.0}
        tokens = batch.tokens
        near = float(np.minimum(tokens, self.options.tokens).sum() / max(int(tokens.sum()), 1))
        return {MAIN: near, self.options.kv: 1.0 - near}

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        """Of the KV all extents in the memory that has them all: their first part is read there, in
        extents as long."""
        there = self.options.weights if what == "weights" else self.options.kv
        return whole(start, size) if memory == there else none()

    def layers(self, memory: str, space: Space) -> range:
        return range(space.layers) if memory == self.options.kv else range(0)
