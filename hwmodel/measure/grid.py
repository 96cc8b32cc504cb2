"""Measurements as grids: streams by changes of a controller, or any cells. Each cell is one
simulation, alone; cells run on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from hwmodel.kernel.limits import Int
from hwmodel.measure.open_loop import OpenLoop
from hwmodel.measure.through import Through, silent
from hwmodel.specs.memory_spec import MemorySpec

Changes = Mapping[str, Any]
"""Field of the controller -> value."""
Streams = Mapping[str, tuple[MemorySpec, Int]]
"""Name -> a channel of a memory, and the local byte addresses that are read of it, shape (n,)."""
Cell = TypeVar("Cell", bound=Hashable)
Figure = TypeVar("Figure")


def measured(
    measure: Callable[[Cell], Figure], cells: Sequence[Cell], through: Through = silent
) -> dict[Cell, Figure]:
    """What each cell of a grid gives, in their order; they go `through`."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the kernels hold no lock
        try:
            return dict(zip(cells, through(pool.map(measure, cells), len(cells)), strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # an interruption begins no more cells
            raise


def changed(memory: MemorySpec, changes: Changes) -> MemorySpec:
    """A memory with other fields of its controller, which are not checked."""
    controller = memory.controller.model_copy(update=dict(changes))
    return memory.model_copy(update={"controller": controller})


def served(
    memory: MemorySpec, address: Int, kind: Int | None = None, arrival: Int | None = None
) -> OpenLoop:
    """A channel that served accesses to local byte addresses, shape (n,), of kinds READ, WRITE or
    PARTIAL_WRITE (None: reads), which arrive at ticks, or as fast as its queues take them."""
    loop = OpenLoop(memory)
    loop.feed(0, address, np.zeros(len(address), np.int64) if kind is None else kind, arrival)
    loop.finish()
    return loop


def reads(streams: Streams, variants: Sequence[Changes]) -> dict[str, list[OpenLoop]]:
    """A channel for each stream and each variant of its controller, which has read it all."""
    cells = [(name, i) for name in streams for i in range(len(variants))]

    def read(cell: tuple[str, int]) -> OpenLoop:
        memory, address = streams[cell[0]]
        return served(changed(memory, variants[cell[1]]), address)

    found = measured(read, cells)
    return {name: [found[name, i] for i in range(len(variants))] for name in streams}


def shares(runs: Sequence[OpenLoop]) -> list[float]:
    """What each run but the first leaves of the bandwidth of the one before."""
    return [one.end_tick / other.end_tick for one, other in pairwise(runs)]
