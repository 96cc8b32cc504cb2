"""KV in motion as one more stream of the cycle model: what each of its bytes costs a step.

A layer of a step, all its phases together, is simulated alone and beside the accesses of what
moves: reads of KV on its way out, writes on its way in, at the addresses of its blocks, in the
layout's order and at its rate; of a card with several memories what of both lies in one of them.
`full` does so in each step with a transfer; `sampled` with the start of a layer, now and then, and
takes the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from policies.memory.sampling import ProbeClock
from policies.memory.step_streams import StepStreams
from policies.placements.placement import PlacedExtents, whole
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


Here = Callable[[IntArray, IntArray, int], PlacedExtents]
"""What lies in one memory of runs (start, bytes) of the KV of a layer."""


def runs(
    layout: KvLayout, moving: Moving, here: Here | None = None
) -> tuple[IntArray, IntArray, float]:
    """(start, bytes) of all that a transfer moves in one memory, and which share of it that is:
    layer by layer, or block by block where a block has all its layers together (assumed)."""
    parts, all_bytes = [], 0
    for layer in range(layout.layers):
        for half in layout.passes:
            start, size = layout.extents(moving.units, layer, half, moving.first, moving.last)
            all_bytes += int(size.sum())
            parts.append(whole(start, size) if here is None else here(start, size, layer))
    start, size, source = (np.concatenate(column) for column in zip(*parts, strict=True))
    if layout.dims.index("unit") < layout.dims.index("layer"):
        by_block = np.argsort(source, kind="stable")
        start, size = start[by_block], size[by_block]
    return start, size, float(size.sum()) / all_bytes


def accesses(
    start: IntArray, size: IntArray, done: float, most: int, piece: int
) -> tuple[IntArray, IntArray]:
    """(start, bytes) of what a transfer of these runs, of which a share is done, moves next, `most`
    bytes at least, in pieces of `piece` bytes at most. Behind its end comes its start again: the
    stream stands for all of a layer's time."""
    counts = -(-size // piece)
    offset = piece * (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts))
    start = np.repeat(start, counts) + offset
    size = np.minimum(np.repeat(size, counts) - offset, piece)
    begin = int(np.searchsorted(np.cumsum(size), done * size.sum(), "right"))
    many = int(most * len(size) / size.sum()) + 1
    chosen = (begin + np.arange(many)) % len(size)
    return start[chosen], size[chosen]


class Slowdown(NamedTuple):
    """By which share of its time a step was longer, and of its bytes what moved meanwhile."""

    lost: float
    moved: float


NOTHING = Slowdown(0.0, 0.0)
"""Where nothing of the step, or of what moves, lies in this memory."""


def ratio(slowdowns: Sequence[Slowdown]) -> float:
    """What was lost over what moved: those with more in motion count for more."""
    return sum(each.lost for each in slowdowns) / (sum(each.moved for each in slowdowns) or 1.0)


class Contention:
    """Of one memory of a card. streams: of the steps in it, phases together. here: what lies in it;
    None: all of it."""

    def __init__(
        self, probe: Probe, streams: StepStreams, spec: FidelitySpec, here: Here | None = None
    ) -> None:
        self._probe, self._streams, self._spec, self._here = probe, streams, spec, here
        self._clocks: dict[tuple[bool, ...], ProbeClock] = {}
        self._found: dict[tuple[bool, ...], list[Slowdown]] = {}

    def cost(self, step: Step, allocator: Allocator, moving: Sequence[Moving], at: int) -> float:
        """Time that a byte in motion takes from step number `at` over that of one of the step's
        own; 1 is what a share of the bandwidth says."""
        kind = (bool(step.chunks), *sorted(each.write for each in moving))
        found = self._found.setdefault(kind, [])
        clock = self._clocks.setdefault(kind, ProbeClock(self._spec))
        placed = 1 + step.tokens, sum(each.rate for each in moving)
        every = self._spec.fidelity != "sampled"
        if every or clock.asks(at, placed, False, self._spec.max_probes):
            found.append(self._simulated(step, allocator, moving, at))
        return max(ratio(found[-1:] if every else found), 0.0)

    def _simulated(
        self, step: Step, allocator: Allocator, moving: Sequence[Moving], at: int
    ) -> Slowdown:
        device = self._probe.device
        parts = [(each, *runs(allocator.layout, each, self._here)) for each in moving]
        parts = [each for each in parts if each[-1]]
        # in simulated time, which is as much shorter
        rates = [each.rate * share / 1e9 / device.derate for each, _, _, share in parts]
        if not sum(rates):
            return NOTHING
        fill = write_queue_bytes(device) * device.peak_gbps / sum(rates)
        least = FILLS * max(fill, device.dma.engines * device.dma.window)
        own = self._own(step, allocator, at, least)
        if not len(own.size):
            return NOTHING
        alone_ns, beside = issuing_ns(device, own), []
        for gbps, (each, start, size, _) in zip(rates, parts, strict=True):
            most = int(gbps * alone_ns * LONGEST)
            start, size = accesses(start, size, each.done, most, device.dma.request)
            beside.append(Paced(start, size, np.full(len(start), each.write), gbps))
        both_ns = issuing_ns(device, own, beside)
        moved = both_ns * sum(rates) / float(own.size.sum() * (1 - WARM))
        return Slowdown(both_ns / alone_ns - 1, moved)

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
