"""Some KV heads of every layer in another memory, so that both are read in each layer's
attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from hwmodel.description.description import DescriptionError
from policies.placements.placement import (
    MAIN,
    Extents,
    Heads,
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


class ByHeadOptions(PlacementOptions):
    """Options of `by_head`."""

    name: Literal["by_head"] = "by_head"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str
    """The memory that has the last heads."""
    share: Annotated[float, Field(gt=0, lt=1)] = 0.25
    """Of the KV heads, those in it; rounded to whole heads."""


class ByHead(Placement):
    """In each memory the heads of a token that it has lie side by side."""

    Options: ClassVar[type[PlacementOptions]] = ByHeadOptions

    def __init__(self, options: Any, supplies: Mapping[str, Supply]) -> None:
        super().__init__(options, supplies)
        self._known("weights", options.weights)
        self._elsewhere("kv", options.kv, "the first heads lie")

    def held(self, what: What, space: Space) -> dict[str, float]:
        if what == "weights":
            return {self.options.weights: 1.0}
        far = self._far(heads := _heads(space)) / heads.many
        return {MAIN: 1.0 - far, self.options.kv: far}

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        if what == "weights":
            return whole(start, size) if memory == self.options.weights else none()
        if memory not in (MAIN, self.options.kv):
            return none()
        heads = _heads(space)
        far = np.arange(heads.many) >= heads.many - self._far(heads)
        turn = Turn(far.astype(np.int64), 2, heads.each_bytes)
        return turn.part(start, size, int(memory != MAIN))

    def _far(self, heads: Heads) -> int:
        """Heads in the other memory."""
        return min(max(round(self.options.share * heads.many), 1), heads.many - 1)


def _heads(space: Space) -> Heads:
    if space.heads is None:
        raise DescriptionError(
            "memories: by_head needs several KV heads that lie side by side; expected a model"
            " without latent attention, a kv_layout that ends with head, and a format without"
            " scales beside the numbers"
        )
    return space.heads
