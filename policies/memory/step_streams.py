"""What a step moves, phase by phase: its descriptors as the memory model simulates them.

First the migrations of all layers, which the step waits for, then of each layer the weights, the
chunks of prefill and the attention of what decodes. Swaps and collectives have no stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.engines.scheduled_step import Step
from policies.memory import traffic
from policies.memory.routing import Routing
from policies.memory.traffic import Extents, Spread

PHASES = ("migration", "weights", "prefill", "attention")


class StepStreams:
    """Streams of the steps of a run. model: what the card holds; tile_bytes: of the weights;
    routing: of a model with experts."""

    def __init__(
        self,
        device: Device,
        model: TransformerSpec,
        tile_bytes: int,
        routing: Routing | None = None,
    ) -> None:
        assert device.accelerator is not None
        self._dma = device.dma
        self._reading = traffic.reading(device, model)
        self._model, self._tile_bytes, self._routing = model, tile_bytes, routing

    def of(
        self, step: Step, allocator: Allocator, layers: Iterable[int], phases: Iterable[str],
        draw: int = 0,
    ) -> Iterator[Descriptors]:  # fmt: skip
        """Those of these layers and phases, while the step has its memory; none is empty. draw:
        the number of the step, by which its experts are drawn."""
        layers, chosen = list(layers), [name for name in PHASES if name in phases]
        for group in (["migration"], [name for name in chosen if name != "migration"]):
            for layer in layers:
                for phase in group:
                    if phase in chosen and self._has(step, phase):
                        spread: Spread = self._reading.spread
                        spread = {"migration": "slice", "weights": "split"}.get(phase, spread)  # type: ignore[assignment]
                        extents = self._extents(step, allocator, layer, phase, draw)
                        yield traffic.deal(extents, self._dma.engines, spread, self._dma.request)

    def at_once(self, step: Step, allocator: Allocator, layer: int, draw: int = 0) -> Descriptors:
        """All but migrations of a layer, moved at the same time."""
        parts = self.of(step, allocator, [layer], PHASES[1:], draw)
        return traffic.at_once(list(parts), self._dma.engines, self._tile_bytes)

    def _has(self, step: Step, phase: str) -> bool:
        return {
            "migration": bool(step.migrations or step.copies),
            "weights": True,
            "prefill": bool(step.chunks),
            "attention": len(step.decode) > 0,
        }[phase]

    def _extents(
        self, step: Step, allocator: Allocator, layer: int, phase: str, draw: int
    ) -> Extents:
        if phase == "migration":
            window = self._dma.window
            return traffic.migration(allocator, step.migrations, layer, window, step.copies)
        if phase == "weights":
            touched = None
            if self._routing is not None:
                touched = self._routing.touched(step.routed, layer, draw)
            return traffic.weights(self._model, layer, self._tile_bytes, touched)
        if phase == "prefill":
            return traffic.prefill(allocator, step.chunks, layer, self._reading)
        return traffic.attention(allocator, step.decode, layer, self._reading)
