"""How near a simulated channel comes to its closed forms (`hwmodel.measure.bounds`)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.measure.bounds import BURSTS_PER_ROW
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.stream import bursts, random_starts, rotating
from hwmodel.specs.memory_spec import MemorySpec

SIMULATED = ("sequential", "random_1_burst", "random_2_bursts")
"""Patterns of `hwmodel.measure.bounds` that are simulated."""
BYTES = 2 << 20
"""Simulated for each figure."""
_SEED = 20250611


class Tightness(NamedTuple):
    """Simulated GB/s of one channel beside a closed form."""

    rotating_gbps: float
    """Under what the closed form assumes: banks in turn, auto-precharge, no per-bank refresh."""
    described_gbps: float
    """As the memory is described: in address order, or at places drawn uniformly."""


def tightness(memory: MemorySpec) -> dict[str, Tightness]:
    """Simulate the patterns `SIMULATED` on one channel of a memory."""
    ideal = _ideal(memory)
    shares = {}
    for pattern in SIMULATED:
        per_row = BURSTS_PER_ROW[pattern]
        if per_row is None:
            order = np.arange(0, BYTES, memory.organisation.burst_bytes, dtype=np.int64)
            in_turn = _with_controller(memory, refresh=ideal.controller.refresh)
            shares[pattern] = Tightness(_reads(in_turn, order), _reads(memory, order))
        else:
            turn = rotating(ideal, per_row, BYTES // memory.organisation.burst_bytes)
            place = _at_random(memory, per_row)
            shares[pattern] = Tightness(_reads(ideal, turn), _reads(memory, place))
    return shares


def _ideal(memory: MemorySpec) -> MemorySpec:
    """The memory as the closed forms take it: see `Tightness.rotating_gbps`."""
    c = memory.controller
    refresh = "all_bank" if c.refresh == "all_bank" else "none"
    page_policy = "closed" if "RDA" in memory.commands else c.page_policy
    plain = memory.model_copy(update={"bank_hash": []})
    return _with_controller(plain, refresh=refresh, page_policy=page_policy)


def _with_controller(memory: MemorySpec, **changes: str) -> MemorySpec:
    return memory.model_copy(update={"controller": memory.controller.model_copy(update=changes)})


def _at_random(memory: MemorySpec, per_row: int) -> NDArray[np.int64]:
    o = memory.organisation
    rng = np.random.Generator(np.random.PCG64([_SEED, per_row]))
    extent = per_row * o.burst_bytes
    start = random_starts(rng, BYTES // extent, extent, o.capacity_bytes)
    return bursts(start, extent, o.burst_bytes)


def _reads(memory: MemorySpec, address: NDArray[np.int64]) -> float:
    """GB/s of reads that arrive as fast as the queues take them."""
    loop = OpenLoop(memory)
    loop.feed(0, address, np.zeros(len(address), np.int64))
    loop.finish()
    return loop.total("bytes") / memory.tick_clock.ns_of_ticks(loop.end_tick)
