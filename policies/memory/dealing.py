"""How extents are dealt to DMA engines, as descriptors, and streams of descriptors put together.

A descriptor is one contiguous extent that one engine reads or writes. How a batch's extents are
dealt to engines is `spread` (assumed: kernels differ):

- `slice`: the batch's extents in order, cut into equal consecutive slices, one an engine. Balanced
  whatever the batch, as kernels that split the KV are (FlashDecoding, stream-K); the default, so
  that policies differ by their layout and not by the balance of engines.
- `sequence`: whole sequences, the longest first to the engine with the least bytes.
- `split`: extents in turn, one to each engine.
- `head`: each KV head of each sequence by itself, the longest first to the engine with the least
  bytes; where heads lie beside one another in a token, each engine reads strided pieces.
- `head_major`: as `head`, but the first head of all sequences comes before their second, so that
  engines beside one another read the same head of several sequences. So FlashAttention-2's grid is
  numbered: (row blocks, batch, heads) with the first index fastest, where it does not split the KV
  (Dao-AILab/flash-attention 01afd16, csrc/flash_attn/src/flash_fwd_launch_template.h).

- `head_slice`: in the order of `head_major`, cut into equal consecutive slices, so that all heads
  are read at once: a kernel that splits the tokens of each head.
- `head_turn`: the first head of all sequences cut into such slices for all engines, then the
  second: a kernel with more blocks a head than there are cores, as of a prompt's chunk.

Weights are dealt in tiles in turn, whatever `spread` is: the tiles of a matrix product go round the
cores, and a core does not own a slice of the layer.
"""

from __future__ import annotations

import heapq

import numpy as np

from hwmodel.kernel.memory import Descriptors
from policies.memory.traffic import Extents, Spread, cut_into
from policies.requests.requests import FloatArray, IntArray

DRIFT_SEED = 20261128
"""Of the places where engines are that do not walk in step: the same in every comparison."""


def deal(
    extents: Extents, engines: int, spread: Spread, align: int, drift: float = 0.0
) -> Descriptors:
    """Descriptors of `extents` spread over `engines`; slices are cut at multiples of `align` bytes.

    drift: the share of its own bytes, of a kernel or of a head where these come in turn, within
    which each engine is at a place of its own, drawn; 0: all begin together and stay in step."""
    if extents.ahead:
        kernels = slice(extents.ahead), slice(extents.ahead, None)
        return joined([deal(extents.of(each), engines, spread, align, drift) for each in kernels])
    if spread == "head_turn":
        heads = [extents.of(extents.owner == head) for head in np.unique(extents.owner)]
        return joined([deal(each, engines, "slice", align, drift) for each in heads])
    dealt = _dealt(extents, engines, spread, align)
    return _apart(dealt, align, drift) if drift and len(dealt.size) else dealt


def _dealt(extents: Extents, engines: int, spread: Spread, align: int) -> Descriptors:
    """As `deal`, of one kernel, in step."""
    if spread in ("slice", "head_slice"):
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
    descriptors: Descriptors, engines: int, begin: float, each_bytes: int | IntArray, align: int
) -> Descriptors:
    """The part of every engine's issue order from the share `begin` of its bytes on, `each_bytes`
    long: the same for all engines, or (n,) as it is for the engine of each descriptor."""
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


def joined(parts: list[Descriptors], place: FloatArray | None = None) -> Descriptors:
    """Several layers one after another on every engine, or descriptors in the order of `place`."""
    engine = np.concatenate([part.engine for part in parts])
    order = np.argsort(engine, kind="stable") if place is None else np.lexsort((place, engine))
    return Descriptors(
        engine[order],
        np.concatenate([part.start for part in parts])[order],
        np.concatenate([part.size for part in parts])[order],
        np.concatenate([part.write for part in parts])[order],
    )


def at_once(parts: list[Descriptors], engines: int, piece: int) -> Descriptors:
    """Streams that are moved at the same time: on each engine they are cut into pieces of at most
    `piece` bytes, which follow one another so that all streams progress alike (assumed: by bytes,
    and engines in step)."""
    cut, place = [], []
    for part in parts:
        offset, size = cut_into(part.size, piece)
        row = np.repeat(np.arange(len(part.size)), -(-part.size // piece))
        each = Descriptors(part.engine[row], part.start[row] + offset, size, part.write[row])
        total = np.bincount(each.engine, size, engines)
        passed = np.cumsum(size) - size - (np.cumsum(total) - total)[each.engine]
        place.append((passed + size / 2) / total[each.engine])
        cut.append(each)
    return joined(cut, np.concatenate(place))


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


def _slices(extents: Extents, engines: int, align: int) -> Descriptors:
    """Equal consecutive slices of the bytes of `extents`, cut where an extent's own offset is
    aligned."""
    ends = np.cumsum(extents.size)
    if not len(ends):  # of what lies in other memories
        return Descriptors(ends, extents.start, extents.size, extents.write)
    total = int(ends[-1])
    at = np.arange(1, engines) * total // engines
    inside = np.minimum(np.searchsorted(ends, at, side="right"), len(ends) - 1)
    begin = ends[inside] - extents.size[inside]
    at = _distinct(begin + (at - begin) // align * align)
    cuts = at[(at > 0) & (at < total)]
    edges = _distinct(np.sort(np.concatenate(([0], ends, cuts)), kind="stable"))
    index = np.searchsorted(ends, edges[:-1], side="right")
    offset = edges[:-1] - (ends[index] - extents.size[index])
    engine = np.searchsorted(cuts, edges[:-1], side="right")
    return Descriptors(engine, extents.start[index] + offset, np.diff(edges), extents.write[index])


def _distinct(values: IntArray) -> IntArray:
    """Of int64 (n,) that do not fall, each once. `np.unique` puts them into a hash table first, and
    takes four times as long."""
    return values[np.append(values[:1] == values[:1], values[1:] != values[:-1])]


def _apart(dealt: Descriptors, align: int, drift: float) -> Descriptors:
    """The descriptors of each engine, begun at a multiple of `align` bytes of one of them and ended
    with what came before: a walk that is looked at when it is already under way."""
    rng, parts = np.random.default_rng(DRIFT_SEED), []
    for engine in np.unique(dealt.engine):
        own = np.flatnonzero(dealt.engine == engine)
        ends = np.cumsum(dealt.size[own])
        place = int(rng.random() * drift * ends[-1])
        first = int(np.searchsorted(ends, place, side="right"))
        row = own[first]
        inside = (place - int(ends[first]) + int(dealt.size[row])) // align * align
        row_of = np.concatenate((own[first:], own[:first], [row] * (inside > 0))).astype(np.int64)
        start, size = dealt.start[row_of], dealt.size[row_of]
        if inside:
            start[0], size[0], size[-1] = start[0] + inside, size[0] - inside, inside
        parts.append(Descriptors(dealt.engine[row_of], start, size, dealt.write[row_of]))
    return Descriptors(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _least_loaded(extents: Extents, engines: int) -> IntArray:
    """Engine of each sequence: the longest first, to the engine with the least bytes so far."""
    load = np.bincount(extents.owner, extents.size)
    heap = [(0.0, engine) for engine in range(engines)]
    engine_of = np.zeros(len(load), np.int64)
    for owner in np.argsort(-load, kind="stable"):
        least, engine = heapq.heappop(heap)
        engine_of[owner] = engine
        heapq.heappush(heap, (least + float(load[owner]), engine))
    return engine_of
