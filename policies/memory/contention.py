"""KV in motion as one more stream of the cycle model: what each of its bytes costs a step.

A layer of a step, all its phases together, is simulated alone and beside the accesses of what
moves: reads of KV on its way out, writes on its way in, at the addresses of its blocks, in the
layout's order and at its rate. `full` does so in each step with a transfer; `sampled` with the
start of a layer, now and then, and takes the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hwmodel.kernel.memory import Descriptors
from hwmodel.measure.paced import WARM, Paced, issuing_ns, write_queue_bytes
from policies.allocators.allocator import Allocator
from policies.allocators.kv_layout import KvLayout, Units
from policies.engines.scheduled_step import Step
from policies.memory import dealing
from policies.memory.fidelity import FidelitySpec
from policies.memory.interval import confidence_interval
from policies.memory.probe import Probe
from policies.memory.sampling import Clock
from policies.memory.step_streams import StepStreams
from policies.requests.requests import IntArray

LONGEST = 6.0
"""Times of what is timed of the step alone for which a transfer is laid out: it never ends."""
FILLS, MOST_LAYERS = 4, 64
"""How often a transfer could fill the write queues, and a step its engines' windows, while they are
simulated, so that these do not hide it; and layers for that at most (assumed)."""


class Moving(NamedTuple):
    """A transfer under way, of tokens [first, last) in these units (None: to their end)."""

    rate: float
    """Bytes a second to or from the card."""
    write: bool
    """Whether it comes in."""
    units: Units
    done: float
    """Share of it that has moved."""
    first: int = 0
    last: int | None = None


def accesses(layout: KvLayout, moving: Moving, most: int, piece: int) -> tuple[IntArray, IntArray]:
    """(start, bytes) of what a transfer moves next, `most` bytes at least, in pieces of `piece`
    bytes at most: layer by layer, or block by block where a block has all its layers together
    (assumed). Behind its end comes its start again: the stream stands for all of a layer's time."""
    each = [
        layout.extents(moving.units, layer, half, moving.first, moving.last)
        for layer in range(layout.layers)
        for half in layout.passes
    ]
    start, size = (np.stack(column) for column in zip(*each, strict=True))
    if layout.dims.index("unit") < layout.dims.index("layer"):
        start, size = start.T, size.T
    start, size = start.ravel(), size.ravel()
    counts = -(-size // piece)
    offset = piece * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
    start = np.repeat(start, counts) + offset
    size = np.minimum(np.repeat(size, counts) - offset, piece)
    begin = int(np.searchsorted(np.cumsum(size), moving.done * size.sum(), "right"))
    many = int(most * len(size) / size.sum()) + 1
    chosen = (begin + np.arange(many)) % len(size)
    return start[chosen], size[chosen]


class Found(NamedTuple):
    """By which share of its time a step was longer, and of its bytes what moved meanwhile."""

    lost: float
    moved: float


def ratio(found: Sequence[Found]) -> float:
    """What was lost over what moved: those with more in motion count for more."""
    return sum(each.lost for each in found) / (sum(each.moved for each in found) or 1.0)


class Contention:
    """Of one card. streams: of the steps, phases together."""

    def __init__(self, probe: Probe, streams: StepStreams, spec: FidelitySpec) -> None:
        self._probe, self._streams, self._spec = probe, streams, spec
        self._clocks: dict[tuple[bool, ...], Clock] = {}
        self._found: dict[tuple[bool, ...], list[Found]] = {}

    def cost(self, step: Step, allocator: Allocator, moving: Sequence[Moving], at: int) -> float:
        """Time that a byte in motion takes from step number `at` over that of one of the step's
        own; 1 is what a share of the bandwidth says."""
        kind = (bool(step.chunks), *sorted(each.write for each in moving))
        found = self._found.setdefault(kind, [])
        clock = self._clocks.setdefault(kind, Clock(self._spec))
        placed = 1 + step.tokens, sum(each.rate for each in moving)
        every = self._spec.fidelity != "sampled"
        if every or clock.asks(at, placed, False, self._spec.max_probes):
            found.append(self._simulated(step, allocator, moving, at))
        return max(ratio(found[-1:] if every else found), 0.0)

    def _simulated(
        self, step: Step, allocator: Allocator, moving: Sequence[Moving], at: int
    ) -> Found:
        layout, device = allocator.layout, self._probe.device
        # in simulated time, which is as much shorter
        rates = [each.rate / 1e9 / device.derate for each in moving]
        fill = write_queue_bytes(device) * device.peak_gbps / sum(rates)
        least = FILLS * max(fill, device.dma.engines * device.dma.window)
        own = self._own(step, allocator, at, least)
        alone_ns, beside = issuing_ns(device, own), []
        for gbps, each in zip(rates, moving, strict=True):
            most = int(gbps * alone_ns * LONGEST)
            start, size = accesses(layout, each, most, device.dma.request)
            beside.append(Paced(start, size, np.full(len(start), each.write), gbps))
        both_ns = issuing_ns(device, own, beside)
        moved = both_ns * sum(rates) / float(own.size.sum() * (1 - WARM))
        return Found(both_ns / alone_ns - 1, moved)

    def _own(self, step: Step, allocator: Allocator, at: int, least: float) -> Descriptors:
        """A layer of a step, and the next ones up to `least` bytes; `sampled`: as long at most."""
        layers, size = allocator.layout.layers, 0
        parts: list[Descriptors] = []
        while not parts or (size < least and len(parts) < MOST_LAYERS):
            layer = (at + len(parts)) % layers
            parts.append(self._streams.at_once(step, allocator, layer, at))
            size += int(parts[-1].size.sum())
        own = dealing.joined(parts)
        return self._probe.start(own, least) if self._spec.fidelity == "sampled" else own

    def report(self) -> dict[str, Any]:
        """`cost` over all probes, and the half-width of its 95 % interval (a ratio's)."""
        found = [each for of_kind in self._found.values() for each in of_kind]
        cost, moved = ratio(found), sum(each.moved for each in found) / max(len(found), 1)
        half = confidence_interval([(each.lost - cost * each.moved) / moved for each in found])[1]
        return {"cost": cost, "ci95": half, "probes": len(found)}
