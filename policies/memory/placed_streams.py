"""The streams of a step in one of a card's memories."""

from __future__ import annotations

from typing import Literal

import numpy as np

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import KvLayout, space_of
from policies.engines.scheduled_step import Step
from policies.memory.routing import Routing
from policies.memory.step_streams import StepStreams, StreamPhase
from policies.memory.traffic import Extents
from policies.placements import placement
from policies.placements.card_memories import CardMemories
from policies.placements.placement import IntArray, What


class PlacedStreams(StepStreams):
    """What lies in this memory of what a step moves. device: as its engines find it there."""

    def __init__(
        self, device: Device, model: TransformerSpec, tile_bytes: int, routing: Routing | None,
        layout: KvLayout, card: CardMemories, memory: str,
    ) -> None:  # fmt: skip
        super().__init__(device, model, tile_bytes, routing)
        self._card, self._memory = card, memory
        self._space = space_of(model, layout, routing)
        self._bases: dict[What, tuple[int, int]] = {
            "weights": (0, 0), "kv": (layout.base, card.base("kv", memory, self._space)),
        }  # fmt: skip
        """Where all of it begins in the layout, and what lies here of it in this memory."""
        self._here: dict[What, bool] = {
            "weights": bool(card.placement.held("weights", self._space).get(memory)),
            "kv": len(card.placement.layers(memory, self._space)) > 0,
        }

    def phases(self, step: Step) -> list[StreamPhase]:
        return [phase for phase in super().phases(step) if self._here[_what(phase)]]

    def kinds(self, phase: StreamPhase | Literal["together"], layout: KvLayout) -> list[list[int]]:
        kinds = super().kinds(phase, layout)
        if phase == "weights" or (self._here["weights"] and phase == "together"):
            return kinds
        nth = self._card.placement.layers(self._memory, self._space)
        here = {layer for place, layer in enumerate(self._kv) if place in nth}
        return [own for kind in kinds if (own := [each for each in kind if each in here])]

    def _kernels(
        self, step: Step, allocator: Allocator, phase: StreamPhase, layer: int, draw: int
    ) -> list[Extents]:
        kernels = super()._kernels(step, allocator, phase, layer, draw)
        return [self._mine(_what(phase), layer, extents) for extents in kernels]

    def _mine(self, what: What, layer: int, extents: Extents) -> Extents:
        nth = self._kv.index(layer) if what == "kv" and layer in self._kv else layer
        part = self.part(what, extents.start, extents.size, nth)
        ahead = int(np.searchsorted(part.source, extents.ahead))
        return Extents(
            part.start, part.size, extents.write[part.source], extents.owner[part.source], ahead
        )

    def part(
        self, what: What, start: IntArray, size: IntArray, nth: int
    ) -> placement.PlacedExtents:
        """What lies in this memory, and where, of the runs of a layer: of KV, of the nth that has
        any."""
        begin, base = self._bases[what]
        here = self._card.placement
        part = here.part(what, self._memory, start - begin, size, nth, self._space)
        return part._replace(start=part.start + base)


def _what(phase: StreamPhase) -> What:
    return "weights" if phase == "weights" else "kv"
