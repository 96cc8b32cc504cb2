"""The least popular experts of each layer in another memory.

What a step reads there follows from how many tokens it routes: of a few, the popular experts are
most of what is read, and a large batch reads all experts alike, however popular. How popular they
are is `serving.routing.skew`; without it any experts are as good.
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
    Experts,
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


class ByHeatOptions(PlacementOptions):
    """Options of `by_heat`."""

    name: Literal["by_heat"] = "by_heat"
    experts: str
    """The memory that has the least popular experts."""
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Of each layer's experts, those in it; rounded to whole experts."""
    kv: str = MAIN
    """The memory that has the KV."""


class ByHeat(Placement):
    """The other weights lie in the main memory."""

    Options: ClassVar[type[PlacementOptions]] = ByHeatOptions
    grows = True

    def __init__(self, options: Any, supplies: Mapping[str, Supply]) -> None:
        super().__init__(options, supplies)
        self._known("kv", options.kv)
        self._elsewhere("experts", options.experts, "the popular ones lie")

    def held(self, what: What, space: Space) -> dict[str, float]:
        if what == "kv":
            return {self.options.kv: 1.0}
        experts = _experts(space)
        far = self._far(experts) * experts.each_bytes / space.weight_bytes
        return {MAIN: 1.0 - far, self.options.experts: far}

    def read(self, what: What, space: Space, batch: Batch | None = None) -> dict[str, float]:
        if what == "kv" or batch is None or space.heat is None:
            return self.held(what, space)
        experts = _experts(space)
        read = space.heat.chances(batch.routed) * experts.each_bytes
        cold = read[len(read) - self._far(experts) :].sum()
        far = float(cold / (experts.beside_bytes + read.sum()))
        return {MAIN: 1.0 - far, self.options.experts: far}

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        if what == "kv":
            return whole(start, size) if memory == self.options.kv else none()
        if memory not in (MAIN, self.options.experts):
            return none()
        experts, heat = _experts(space), space.heat
        assert heat is not None, "what is simulated is routed"
        far = self._far(experts)
        cold = np.zeros(experts.many, np.bool_)
        cold[heat.ranked(layer)[experts.many - far :]] = True
        before = far * sum(sum(experts.tensors(each)[1]) for each in range(layer))
        """Bytes of cold experts of the layers before."""
        first, tensors = experts.tensors(layer)
        edges, is_cold = [before, first], [False]  # what lies before this layer's experts
        for each in filter(None, tensors):
            edges += (edges[-1] + each * np.arange(1, experts.many + 1)).tolist()
            is_cold += cold.tolist()
        apart = np.array([*is_cold, False])
        gone = before + np.concatenate(([0], np.cumsum(np.diff(edges) * apart[:-1])))
        begin = gone if memory != MAIN else np.array(edges) - gone
        return cut(start, size, np.array(edges), np.where(apart == (memory != MAIN), begin, -1))

    def _far(self, experts: Experts) -> int:
        """Experts of a layer in the other memory."""
        return min(max(round(self.options.share * experts.many), 1), experts.many - 1)


def _experts(space: Space) -> Experts:
    if space.experts is None:
        raise DescriptionError(
            "memories: by_heat needs all routed experts on each card; expected a model with"
            " experts, without expert_parallel"
        )
    return space.experts
