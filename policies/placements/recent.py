"""The last tokens of each request in the main memory, all of its KV in another one.

The main memory is a cache of what is newest, written through: a new token's KV goes to both, and
what leaves the cache lies in the other memory already, so that nothing is moved. Attention reads
the last tokens in the main memory and those before them in the other. The main memory keeps room
for as many sequences as may run at once. The second write of a token is not counted: it is one
beside the thousands that its step reads.

With `moves` a new token's KV goes to the main memory alone, and is read there and written in the
other one as it leaves the last `tokens`: one token of each request a step, after the step's other
phases (assumed). Of a prompt's chunk what is older than that is written where it belongs at once.
The room that the last tokens leave in the other memory is not given to others (assumed).
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
    moves: bool = False
    """Whether a token is moved as it leaves them, not written to both as it is made."""


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

    @property
    def carried(self) -> dict[str, float]:
        return {MAIN: 0.5, self.options.kv: 0.5} if self.options.moves else {}

    def moved(self, before: IntArray, after: IntArray) -> IntArray:
        """Those that were among the last tokens, and are no more."""
        last = self.options.tokens
        return np.maximum(np.minimum(before, after - last), 0) - np.maximum(before - last, 0)

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        """Of the KV all extents in the memory that has them all: their first part is read there, in
        extents as long."""
        there = self.options.weights if what == "weights" else self.options.kv
        return whole(start, size) if memory == there else none()

    def layers(self, memory: str, space: Space) -> range:
        return range(space.layers) if memory == self.options.kv else range(0)
