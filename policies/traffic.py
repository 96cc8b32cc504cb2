"""The accesses of one layer's phases: what every DMA engine is told to move, at its real addresses.

A descriptor is one contiguous extent that one engine reads or writes. How a batch's extents are
dealt to engines is `spread` (assumed: kernels differ):

- `slice`: the batch's extents in order, cut into equal consecutive slices, one an engine. Balanced
  whatever the batch, as kernels that split the KV are (FlashDecoding, stream-K); the default, so
  that policies differ by their layout and not by the balance of engines.
- `sequence`: whole sequences, the longest first to the engine with the least bytes.
- `split`: extents in turn, one to each engine.

Weights are dealt in tiles in turn, whatever `spread` is: the tiles of a matrix product go round the
cores, and a core does not own a slice of the layer.
"""

from __future__ import annotations

import heapq
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.memory import Descriptors
from hwmodel.transformer import TransformerSpec
from policies.allocator import Allocator, Migration
from policies.engine import Chunk
from policies.kv_layout import Extents, Units
from policies.requests import IntArray

Spread = Literal["slice", "sequence", "split"]


class Extent(NamedTuple):
    """Extents of a batch in order, before dealing; arrays (n,). `owner`: the sequence's place."""

    start: IntArray
    size: IntArray
    write: NDArray[np.bool_]
    owner: IntArray


def attention(allocator: Allocator, requests: IntArray, layer: int) -> Extent:
    """One layer of a decode step whose new tokens have their slots already: for each request the K
    of the tokens before and the new one's K written, then the same of V."""
    parts = []
    for place, request in enumerate(requests.tolist()):
        units, stored = allocator.units(request), int(allocator.stored[request])
        for half in (0, 1):
            read = allocator.layout.extents(units, layer, half, 0, stored - 1)
            new = allocator.layout.extents(units, layer, half, stored - 1, stored)
            parts += [(read, False, place), (new, True, place)]
    return _batch(parts)


def prefill(allocator: Allocator, chunks: list[Chunk], layer: int) -> Extent:
    """One layer of the chunks of a step: earlier chunks' K read and the chunk's K written, then
    V."""
    parts = []
    for place, chunk in enumerate(chunks):
        units = allocator.units(chunk.request)
        end = chunk.start + chunk.tokens
        for half in (0, 1):
            read = allocator.layout.extents(units, layer, half, 0, chunk.start)
            new = allocator.layout.extents(units, layer, half, chunk.start, end)
            parts += [(read, False, place), (new, True, place)]
    return _batch(parts)


def migration(allocator: Allocator, moves: list[Migration], layer: int, piece_bytes: int) -> Extent:
    """One layer of contiguous copies, in pieces: each is read from the old place and written to the
    new."""
    starts, sizes, owners = [], [], []
    for place, move in enumerate(moves):
        size = int(allocator.reserved[move.request])
        for half in (0, 1):
            old = allocator.layout.extents(_unit(move.source, move.tokens, move.left), layer, half)
            new = allocator.layout.extents(_unit(move.target, move.tokens, size), layer, half)
            offset, part = _pieces(old.size, piece_bytes)
            index = np.repeat(np.arange(len(old.size)), -(-old.size // piece_bytes))
            starts.append(
                np.stack((old.start[index] + offset, new.start[index] + offset), 1).ravel()
            )
            sizes.append(np.repeat(part, 2))
            owners.append(np.full(2 * len(part), place, np.int64))
    start = np.concatenate(starts)
    write = np.arange(len(start)) % 2 == 1
    return Extent(start, np.concatenate(sizes), write, np.concatenate(owners))


def weights(model: TransformerSpec, layer: int, tile_bytes: int) -> Extent:
    """One layer's weights in tiles, in order; layers lie one after another from address 0."""
    whole = np.array([model.layer_weight_bytes], np.int64)
    offset, size = _pieces(whole, tile_bytes)
    reads = np.zeros(len(size), np.bool_)
    return Extent(layer * whole + offset, size, reads, np.zeros(len(size), np.int64))


def contiguous(start: int, size: int, parts: int) -> Extent:
    """Bytes that lie together, in equal parts, each a sequence of its own: whatever the `spread`,
    each of `parts` engines reads one long contiguous extent."""
    edges = start + np.arange(parts + 1) * size // parts
    owner = np.arange(parts)
    return Extent(edges[:-1], np.diff(edges), np.zeros(parts, np.bool_), owner)


def deal(extents: Extent, engines: int, spread: Spread, align: int) -> Descriptors:
    """Descriptors of `extents` spread over `engines`; slices are cut at multiples of `align`
    bytes."""
    if spread == "slice":
        return _slices(extents, engines, align)
    if spread == "split":
        engine = np.arange(len(extents.start)) % engines
    else:
        engine = _least_loaded(extents, engines)[extents.owner]
    order = np.argsort(engine, kind="stable")
    return Descriptors(
        engine[order], extents.start[order], extents.size[order], extents.write[order]
    )


def window(
    descriptors: Descriptors, engines: int, begin: float, each_bytes: int, align: int
) -> Descriptors:
    """The part of every engine's issue order from the share `begin` of its bytes on, `each_bytes`
    long."""
    total = np.bincount(descriptors.engine, descriptors.size, engines).astype(np.int64)
    passed = np.cumsum(descriptors.size) - descriptors.size
    before = np.concatenate(([0], np.cumsum(total)[:-1]))
    first = (before + (total * begin).astype(np.int64) // align * align)[descriptors.engine]
    low = np.clip(first - passed, 0, descriptors.size)
    high = np.clip(first + each_bytes - passed, 0, descriptors.size)
    kept = high > low
    return Descriptors(
        descriptors.engine[kept],
        (descriptors.start + low)[kept],
        (high - low)[kept],
        descriptors.write[kept],
    )


def joined(parts: list[Descriptors]) -> Descriptors:
    """Several layers one after another on every engine."""
    order = np.argsort(np.concatenate([part.engine for part in parts]), kind="stable")
    return Descriptors(
        np.concatenate([part.engine for part in parts])[order],
        np.concatenate([part.start for part in parts])[order],
        np.concatenate([part.size for part in parts])[order],
        np.concatenate([part.write for part in parts])[order],
    )


def balance(loads: IntArray, rate: float, engine_rate: float) -> float:
    """Share of `rate` (bytes/s of all engines busy) that is kept when engines run out of work.

    loads: bytes of each engine. The busy engines share `rate` evenly, none above `engine_rate`
    (fluid model, assumed), so that the last ones may not fill the memory.
    """
    busy = np.sort(loads[loads > 0]).astype(np.float64)
    if not len(busy):
        return 1.0
    stretch = np.diff(busy, prepend=0.0)
    alive = np.arange(len(busy), 0, -1)
    seconds = float((stretch / np.minimum(rate / alive, engine_rate)).sum())
    return min(float(busy.sum()) / seconds / rate, 1.0)


def _batch(parts: list[tuple[Extents, bool, int]]) -> Extent:
    count = [len(extents.start) for extents, _, _ in parts]
    return Extent(
        np.concatenate([extents.start for extents, _, _ in parts]),
        np.concatenate([extents.size for extents, _, _ in parts]),
        np.repeat(np.array([write for _, write, _ in parts], np.bool_), count),
        np.repeat(np.array([place for _, _, place in parts], np.int64), count),
    )


def _unit(start: int, tokens: int, size: int) -> Units:
    return Units(*(np.array([value], np.int64) for value in (start, tokens, size)))


def _pieces(sizes: IntArray, piece: int) -> tuple[IntArray, IntArray]:
    """(offset in its extent, bytes) of every piece of extents of these sizes."""
    counts = -(-sizes // piece)
    nth = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = nth * piece
    return offset, np.minimum(np.repeat(sizes, counts) - offset, piece)


def _slices(extents: Extent, engines: int, align: int) -> Descriptors:
    """Equal consecutive slices of the bytes of `extents`, cut where an extent's own offset is
    aligned."""
    ends = np.cumsum(extents.size)
    total = int(ends[-1]) if len(ends) else 0
    at = np.arange(1, engines) * total // engines
    inside = np.minimum(np.searchsorted(ends, at, side="right"), max(len(ends) - 1, 0))
    begin = ends[inside] - extents.size[inside]
    at = np.unique(begin + (at - begin) // align * align)
    cuts = at[(at > 0) & (at < total)]
    edges = np.union1d(np.concatenate(([0], ends)), cuts)
    index = np.searchsorted(ends, edges[:-1], side="right")
    offset = edges[:-1] - (ends[index] - extents.size[index])
    engine = np.searchsorted(cuts, edges[:-1], side="right")
    return Descriptors(engine, extents.start[index] + offset, np.diff(edges), extents.write[index])


def _least_loaded(extents: Extent, engines: int) -> IntArray:
    """Engine of each sequence: the longest first, to the engine with the least bytes so far."""
    load = np.bincount(extents.owner, extents.size)
    heap = [(0.0, engine) for engine in range(engines)]
    engine_of = np.zeros(len(load), np.int64)
    for owner in np.argsort(-load, kind="stable"):
        least, engine = heapq.heappop(heap)
        engine_of[owner] = engine
        heapq.heappush(heap, (least + float(load[owner]), engine))
    return engine_of
