"""Virtual to physical addresses: frames, TLBs, and walks of the page table that read DRAM.

Extents are cut at frames, and each piece goes to the frame that holds it. The first access to a
frame asks the TLBs, nearest first. Where none has it, the engine walks the page table: it reads the
entry of each of `levels` at its address, 8 bytes, and the data after them. With `walks: stall` it
waits for each of these reads as long as one takes in an idle memory (latencies of the DMA, ACT, RD,
data), as it waits for a descriptor. That is too short under load, and too long where a core has
other work to go on with; with `overlap` it waits for none. Engines that miss the same frame at once
walk once (the others hit); there are as many walkers as engines.

A TLB that all engines share sees their accesses in the order of the bytes that each has passed.
TLBs are empty at first, but those that reach over `footprint`, which hold everything.

Table pages of 512 entries lie below the end of the memory, level after level, those that the stream
touches side by side (assumed). A walk counts as no useful byte.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from hwmodel.kernel.extents import MAPPED, EngineStream, Frames, Int, cut
from hwmodel.specs.virtual_memory import LEAST_FRAME, Tlb, Translation

ENTRY_BYTES = 8
_FANOUT = LEAST_FRAME // ENTRY_BYTES


def translated(
    spec: Translation, capacity: int, engines: int, stream: EngineStream, frames: Frames | None,
    trip: int, unit: float,
) -> EngineStream:  # fmt: skip
    """The stream at physical addresses, with the walks in it.

    frames: of an allocator, whose extents are at physical addresses. trip: of a read of a walk, in
    the unit of `EngineStream.wait`, of which a nanosecond has `unit`.
    """
    stream = cut(stream, spec.frame)
    page, start = stream.start // spec.frame, stream.start
    count = capacity // spec.frame  # whole frames; what is left behind them stays in its place
    if spec.map == "shuffled":
        moved = shuffled(count, spec.seed)[np.minimum(page, count - 1)]
        start = np.where(page < count, moved * spec.frame + start % spec.frame, start)
    if frames is not None:
        virtual = frames.addresses(stream.start) - MAPPED
        page = np.where(virtual >= 0, count + 1 + virtual // frames.size, page)
        start = np.where(virtual >= 0, stream.start, start)
    footprint = capacity if spec.footprint is None else spec.footprint
    levels = lookups(spec.tlb, engines, stream, page, -(-footprint // spec.frame))
    passed = np.cumsum([0.0, *(each.latency for each in spec.tlb)])
    if spec.walks == "overlap":
        passed *= 0
    late = np.rint(passed[np.minimum(levels + 1, len(spec.tlb))] * unit).astype(np.int64)
    walks = np.flatnonzero(levels == len(spec.tlb))
    stream = stream._replace(start=start, wait=stream.wait + late)
    return _with_walks(spec, capacity, stream, page, walks, trip)


@lru_cache(maxsize=2)
def shuffled(frames: int, seed: int) -> Int:
    """The physical frame of each virtual one, a permutation, int64 (frames,)."""
    key = np.random.SeedSequence(seed, spawn_key=tuple(b"hwmodel.frames"))
    return np.random.default_rng(key).permutation(frames)


def lookups(tlbs: list[Tlb], engines: int, stream: EngineStream, page: Int, footprint: int) -> Int:
    """Which TLB has the translation of each piece: 0 the nearest, len(tlbs) none, -1 the engine
    itself, which used it for the piece before. page: virtual frame of each; footprint: frames that
    are gone through before one is used again."""
    passed = np.cumsum(stream.size)
    before = np.searchsorted(stream.engine, stream.engine)  # first piece of the same engine
    passed -= passed[before] - stream.size[before] + stream.size
    again = np.concatenate(([False], (np.diff(stream.engine) == 0) & (np.diff(page) == 0)))
    found = np.where(again[: len(page)], -1, len(tlbs))
    asked = np.flatnonzero(found >= 0)
    order = asked[np.lexsort((stream.engine[asked], passed[asked]))]
    held: list[list[dict[int, None]]] = [[{} for _ in range(engines)] for _ in tlbs]
    everything = next((at for at, tlb in enumerate(tlbs) if tlb.entries >= footprint), len(tlbs))
    for piece, engine, wanted in zip(
        order.tolist(), stream.engine[order].tolist(), page[order].tolist(), strict=True
    ):
        at = everything
        for level, tlb in enumerate(tlbs[:everything]):
            entries = held[level][0 if tlb.shared else engine]
            known = wanted in entries
            entries.pop(wanted, None)
            entries[wanted] = None  # the last one used is the last to go
            if known:
                at = level
                break
            if len(entries) > tlb.entries:
                del entries[next(iter(entries))]
        found[piece] = at
    return found


def _with_walks(
    spec: Translation, capacity: int, stream: EngineStream, page: Int, walks: Int, trip: int
) -> EngineStream:
    """The stream with the reads of the page table before the pieces that miss."""
    wait = stream.wait.copy()
    columns = []
    top = capacity // LEAST_FRAME * LEAST_FRAME
    entry = page[walks]
    for _ in range(spec.levels):
        table, within = np.divmod(entry, _FANOUT)
        pages, rank = np.unique(table, return_inverse=True)
        top -= len(pages) * LEAST_FRAME
        columns.append(top + rank * LEAST_FRAME + within * ENTRY_BYTES)
        entry = table
    stalled = trip if spec.walks == "stall" else 0
    first = wait[walks]
    wait[walks] = stalled
    read, none = np.full(len(walks), ENTRY_BYTES), np.zeros(len(walks), np.int64)
    parts = [stream._replace(wait=wait)]
    places = [np.arange(len(page)) * (spec.levels + 1) + spec.levels]
    for level, address in enumerate(columns):
        waits = first if level == spec.levels - 1 else none + stalled
        parts.append(EngineStream(stream.engine[walks], address, read, none, waits))
        places.append(walks * (spec.levels + 1) + spec.levels - 1 - level)
    order = np.argsort(np.concatenate(places))
    return EngineStream(*(np.concatenate(column)[order] for column in zip(*parts, strict=True)))
