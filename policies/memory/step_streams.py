"""The address stream of a step's phases: what each moves in a layer, dealt to the DMA engines.

The bytes are those of its `policies.memory.step_work.StepWork`, but for the weights of the output
head, which belong to no layer, and drafts, swaps and collectives, which have no stream. First come
the migrations of all layers, which the step waits for, then of each layer the weights, the chunks
of prefill and the attention of what decodes. Kernels of a layer follow one another: the reading of
an index, then attention, then that of states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import numpy as np

from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import KvLayout
from policies.engines.scheduled_step import Step
from policies.memory import dealing, traffic
from policies.memory.routing import Routing
from policies.memory.state_streams import StateStreams
from policies.memory.traffic import Extents, Spread, WrittenRows

StreamPhase = Literal["migration", "weights", "prefill", "attention"]
PHASES: tuple[StreamPhase, ...] = ("migration", "weights", "prefill", "attention")


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
        self.reading = traffic.reading(device, model)
        self._model, self._tile_bytes, self._routing = model, tile_bytes, routing
        self._states = None if model.state is None else StateStreams(model)
        self._kv = list(range(model.layers))
        """Layers with KV, in order."""
        if model.state is not None:
            self._kv = [n for n in self._kv if model.layer(n).attention is not None]

    @property
    def layers(self) -> int:
        """Of the model."""
        return self._model.layers

    def spread(self, phase: StreamPhase) -> Spread:
        """How what a phase moves is dealt to the engines."""
        if phase == "weights":
            return "split"
        return "slice" if phase == "migration" else self.reading.spread

    def kinds(self, phase: StreamPhase | Literal["together"], layout: KvLayout) -> list[list[int]]:
        """Layers that move something in a phase, or in all of them at once, those together that
        move as much KV and states."""
        if self._states is None:
            groups = layout.groups
            return [list(range(layout.layers))] if groups is None else groups.kinds
        if phase == "weights":
            return [list(range(self._model.layers))]
        kinds: dict[tuple[bool, bool], list[int]] = {}
        for layer in range(self._model.layers):
            kind = layer in self._kv, layer in self._states.layers
            if any(kind) or phase == "together":
                kinds.setdefault(kind, []).append(layer)
        return list(kinds.values())

    def of(
        self, step: Step, allocator: Allocator, layers: Iterable[int], phases: Iterable[str],
        draw: int = 0,
    ) -> Iterator[Descriptors]:  # fmt: skip
        """Those of these layers and phases, while the step has its memory; none is empty. draw:
        the number of the step, by which its experts are drawn."""
        layers, chosen = list(layers), [name for name in self.phases(step) if name in phases]
        moving = [name for name in chosen if name == "migration"]
        for group in (moving, [name for name in chosen if name != "migration"]):
            for layer in layers:
                for phase in group:
                    stream = self.layer(step, allocator, phase, layer, draw)
                    if len(stream.size):
                        yield stream

    def phases(self, step: Step) -> list[StreamPhase]:
        """Those that a step has."""
        there = {
            "migration": bool(step.migrations or step.copies),
            "weights": True,
            "prefill": bool(step.chunks),
            "attention": len(step.decode) > 0,
        }
        return [phase for phase in PHASES if there[phase]]

    def layer(
        self, step: Step, allocator: Allocator, phase: StreamPhase, layer: int, draw: int = 0
    ) -> Descriptors:
        """What a phase moves in one layer of the model, one kernel after the other."""
        engines, align, spread = self._dma.engines, self._dma.request, self.spread(phase)
        drift = self.reading.drift if phase in ("attention", "prefill") else 0.0
        kernels = [
            dealing.deal(extents, engines, spread, align, drift)
            for extents in self._kernels(step, allocator, phase, layer, draw)
        ]
        if not kernels:
            return _nothing()
        return kernels[0] if len(kernels) == 1 else dealing.joined(kernels)

    def at_once(self, step: Step, allocator: Allocator, layer: int, draw: int = 0) -> Descriptors:
        """All but migrations of a layer, moved at the same time."""
        parts = list(self.of(step, allocator, [layer], PHASES[1:], draw))
        if not parts:
            return _nothing()
        return dealing.at_once(parts, self._dma.engines, self._tile_bytes)

    def attention(self, step: Step, allocator: Allocator, nth: int) -> Extents:
        """Of what decodes, in the nth layer with KV."""
        rows = None
        if step.rows is not None and step.lengths is not None:
            rows = WrittenRows(step.lengths, step.rows)
        return traffic.attention(allocator, step.decode, nth, self.reading, rows)

    def _kernels(
        self, step: Step, allocator: Allocator, phase: StreamPhase, layer: int, draw: int
    ) -> list[Extents]:
        if phase == "weights":
            touched = None
            if self._routing is not None:
                touched = self._routing.touched(step.routed, layer, draw)
            return [traffic.weights(self._model, layer, self._tile_bytes, touched)]
        kernels = []
        if layer in self._kv:
            nth = self._kv.index(layer)
            if phase == "migration":
                window, moves = self._dma.window, step.migrations
                kernels.append(traffic.migration(allocator, moves, nth, window, step.copies))
            elif phase == "prefill":
                kernels.append(traffic.prefill(allocator, step.chunks, nth, self.reading))
            else:
                kernels.append(self.attention(step, allocator, nth))
        if self._states is not None and layer in self._states.layers:
            if phase == "migration" and step.migrations:
                kernels.append(self._states.migration(step.migrations, allocator, layer))
            elif phase == "prefill":
                kernels.append(self._states.prefill(step, allocator, layer))
            elif phase == "attention":
                kernels.append(self._states.decode(step, allocator, layer))
        return kernels


def _nothing() -> Descriptors:
    none = np.zeros(0, np.int64)
    return Descriptors(none, none, none, none > 0)
