"""The KV of some layers in the main memory, that of the others in another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from hwmodel.description.description import DescriptionError
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


class ByLayerOptions(PlacementOptions):
    """Options of `by_layer`."""

    name: Literal["by_layer"] = "by_layer"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str
    """The memory that has the KV of the last layers."""
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Of the layers with KV, those whose KV lies there; rounded to whole layers."""


class ByLayer(Placement):
    """Whole layers, so that each is read at one memory's rate."""

    Options: ClassVar[type[PlacementOptions]] = ByLayerOptions

    def __init__(self, options: Any, supplies: Mapping[str, Supply]) -> None:
        super().__init__(options, supplies)
        self._known("weights", options.weights)
        self._elsewhere("kv", options.kv, "the first layers lie")

    def held(self, what: What, space: Space) -> dict[str, float]:
        if what == "weights":
            return {self.options.weights: 1.0}
        near = self._first(space) / space.layers
        return {MAIN: near, self.options.kv: 1.0 - near}

    def layers(self, memory: str, space: Space) -> range:
        first = self._first(space)
        if memory == MAIN:
            return range(first)
        return range(first, space.layers) if memory == self.options.kv else range(0)

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        if what == "weights":
            return whole(start, size) if memory == self.options.weights else none()
        layers = self.layers(memory, space)
        if layer not in layers:
            return none()
        plane = space.slots * space.slot_bytes // space.layers
        return whole(start - layers.start * plane, size)

    def _first(self, space: Space) -> int:
        """The first layer that lies elsewhere."""
        if not space.layers_first:
            raise DescriptionError(
                "memories: by_layer needs the KV of a layer together; expected a kv_layout that"
                " begins with layer"
            )
        elsewhere = round(self.options.share * space.layers)
        return space.layers - min(max(elsewhere, 1), space.layers - 1)
