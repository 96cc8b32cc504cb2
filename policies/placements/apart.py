"""Weights in one memory, KV in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

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


class ApartOptions(PlacementOptions):
    """Options of `apart`."""

    name: Literal["apart"] = "apart"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str = MAIN
    """The memory that has the KV."""


class Apart(Placement):
    """All weights in one memory and all KV in one, the same or another."""

    Options: ClassVar[type[PlacementOptions]] = ApartOptions

    def __init__(self, options: Any, supplies: Mapping[str, Supply]) -> None:
        super().__init__(options, supplies)
        self._of: dict[What, str] = {
            "weights": self._known("weights", options.weights), "kv": self._known("kv", options.kv),
        }  # fmt: skip

    def held(self, what: What, space: Space) -> dict[str, float]:
        return {self._of[what]: 1.0}

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        return whole(start, size) if self._of[what] == memory else none()
