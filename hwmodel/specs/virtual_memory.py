"""The description of virtual memory: frames, TLBs and page tables between DMA engines and DRAM."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from hwmodel.description.description import Strict
from hwmodel.description.units import Nanoseconds, PositiveBytes

LEAST_FRAME = 4 << 10
"""A page of a table fills it: 512 entries of 8 B (x86-64, and Arm with granules of 4 KiB)."""


def _power_of_two(size: int) -> int:
    if size < LEAST_FRAME or size & (size - 1):
        raise ValueError("expected a power of two from 4KiB on")
    return size


Frame = Annotated[PositiveBytes, AfterValidator(_power_of_two)]
"""Field type: bytes of a frame."""


class Tlb(Strict):
    """A cache of translations, fully associative, least recently used out first (assumed)."""

    entries: Annotated[int, Field(ge=1, le=1 << 24)]
    """A frame each."""
    shared: bool = False
    """One for all engines; else one each."""
    latency: Nanoseconds = 0.0
    """What a look into it adds to those before."""


class Translation(Strict):
    """Pages, translation caches and walkers through which engines find physical addresses."""

    frame: Frame = 2 << 20
    """Physical memory is handed out in frames of this size."""
    map: Literal["identity", "shuffled"] = "identity"
    """Which frame holds which virtual one: the same, or any at random, as a free list leaves them
    that has been in use for long. An allocator that maps frames itself hands its own."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Of the shuffle."""
    tlb: list[Tlb] = []
    """Nearest to the engines first. An engine also keeps the translation it used last (assumed)."""
    levels: Annotated[int, Field(ge=1, le=5)] = 1
    """Of the page table, from the last one up, that a walk reads in memory, one after the other;
    those above are found in walk caches (assumed)."""
    walks: Literal["stall", "overlap"] = "stall"
    """`stall`: the engine waits for each read of a walk. `overlap`: other work hides the wait, and
    only bytes and rows of the table are paid for."""
    footprint: PositiveBytes | None = None
    """What is read before the same place is read again; a TLB that reaches over it never misses.
    None: the whole memory (assumed: a decode step reads all weights and the KV)."""
