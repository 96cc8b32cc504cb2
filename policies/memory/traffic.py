"""The accesses of one layer's phases: what every DMA engine moves, at its real addresses.

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

Where query heads that share a KV head are not served by one read (`grouped: false`), every read of
K and V comes as often as query heads share it: one after the other, or with `head` and `head_major`
each for an engine of its own.

Weights are dealt in tiles in turn, whatever `spread` is: the tiles of a matrix product go round the
cores, and a core does not own a slice of the layer.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.kernel.memory import Descriptors
from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Migration
from policies.allocators.kv_layout import ByteRuns, KvLayout, Parts, Units
from policies.allocators.kv_sparse import Sparse
from policies.engines.scheduled_step import Chunk
from policies.requests.requests import FloatArray, IntArray

Spread = Literal["slice", "sequence", "split", "head", "head_major"]


class Reading(NamedTuple):
    """How a device's cores read the KV of a model."""

    spread: Spread = "slice"
    repeats: int = 1
    """How often K and V are read."""

    @property
    def by_head(self) -> bool:
        """Whether each KV head is a part of its own."""
        return self.spread in ("head", "head_major")


def reading(device: Device, model: TransformerSpec) -> Reading:
    """As the device's description has it."""
    assert device.accelerator is not None
    work = device.accelerator.work
    return Reading(work.spread, 1 if work.grouped else model.heads // model.kv_heads)


_PLAIN = Reading()


class Extents(NamedTuple):
    """What a phase moves, in order, before dealing; arrays (n,). `owner`: the sequence's place."""

    start: IntArray
    size: IntArray
    write: NDArray[np.bool_]
    owner: IntArray
    ahead: int = 0
    """So many of them are dealt and moved before the others: those of another kernel."""

    def of(self, chosen: Any) -> Extents:
        """Those of a slice, a mask or an order, of one kernel."""
        return Extents(
            self.start[chosen], self.size[chosen], self.write[chosen], self.owner[chosen]
        )


class Rows(NamedTuple):
    """Tokens of each sequence that a step writes behind those that were stored, int64 (n,) each:
    its last one and its drafts, of which not all stay."""

    stored: IntArray
    written: IntArray


def attention(
    allocator: Allocator, requests: IntArray, layer: int, reading: Reading = _PLAIN,
    rows: Rows | None = None,
) -> Extents:  # fmt: skip
    """One layer of a decode step whose new tokens have their slots already: for each request the K
    of the tokens before and the new ones' K written, then the same of V. Where tokens are chosen,
    their index comes first, for all requests, and then the K and V of those chosen.

    reading: as its `repeats` and its parts are. rows: where drafts are verified; None: one of each
    sample.
    """
    group, _ = allocator.layout.place(layer)
    units = [allocator.layer_units(request, group) for request in requests.tolist()]
    new, layout = allocator.width[requests], allocator.layout
    last = allocator.stored[requests]
    if rows is not None:
        new = rows.written
        more = np.maximum(rows.stored + new - last, 0).tolist()
        units = [_ahead(each, tokens) for each, tokens in zip(units, more, strict=True)]
        last = rows.stored + new
        if layout.sparse is None:
            return _passes(layout, units, rows.stored, last, layer, reading)
    if (sparse := layout.sparse) is None:
        return decode(layout, units, new, layer, reading)
    stored = last - new
    ends = np.array([each.tokens.sum() for each in units]) if rows is None else last
    kv = _chosen(layout, sparse, units, requests, stored, ends, layer, reading)
    return _behind(_index(layout, units, sparse.indexed(stored), stored, last, layer), kv)


def _ahead(units: Units, tokens: int) -> Units:
    """With so many tokens more, in the room that the last units have."""
    room = units.size - units.tokens
    more = np.clip(tokens - (np.cumsum(room) - room), 0, room)
    return units._replace(tokens=units.tokens + more)


def decode(
    layout: KvLayout, units: list[Units], new: IntArray, layer: int, reading: Reading = _PLAIN
) -> Extents:
    """`attention` of sequences that lie in `units`, whose last `new` tokens, int64 (sequences,),
    are those of the step."""
    # with the copies that samples have of their prompt's last block
    stored = np.array([each.tokens.sum() for each in units], np.int64)
    return _passes(layout, units, stored - new, stored, layer, reading)


def prefill(
    allocator: Allocator, chunks: list[Chunk], layer: int, reading: Reading = _PLAIN
) -> Extents:
    """One layer of the chunks of a step: earlier chunks' K read and the chunk's K written, then
    V; `reading` as in `attention`."""
    group, _ = allocator.layout.place(layer)
    units = [allocator.layer_units(chunk.request, group) for chunk in chunks]
    start = np.array([chunk.start for chunk in chunks], np.int64)
    last = start + np.array([chunk.tokens for chunk in chunks], np.int64)
    layout = allocator.layout
    passes = _passes(layout, units, start, last, layer, reading)
    if (sparse := layout.sparse) is None:
        return passes
    scored = start * (not sparse.whole_prompts)
    return _behind(_index(layout, units, scored, start, last, layer), passes)


def _index(
    layout: KvLayout, units: list[Units], read: IntArray, middle: IntArray, last: IntArray,
    layer: int,
) -> Extents | None:  # fmt: skip
    """What tokens are chosen by: of the first `read` of each sequence read, of tokens [middle,
    last) written; None where there is none."""
    if (index := layout.index) is None:
        return None
    spans = np.arange(2 * len(units))
    first = np.stack((np.zeros_like(middle), middle), 1).ravel()
    end = np.stack((read, last), 1).ravel()
    pieces, span = _pieces_of(units, spans // 2, first, end)
    runs, group = index.runs(Parts(*pieces, None, None, span), layer)
    return Extents(runs.start, runs.size, group % 2 == 1, group // 2)


def _behind(index: Extents | None, kv: Extents) -> Extents:
    """`kv` after the reading of the index."""
    if index is None:
        return kv
    return Extents(
        np.concatenate((index.start, kv.start)),
        np.concatenate((index.size, kv.size)),
        np.concatenate((index.write, kv.write)),
        np.concatenate((index.owner, kv.owner)),
        len(index.start),
    )


class _Pass(NamedTuple):
    """What is moved of each sequence at once. `owner`: of how many parts it is which one."""

    owner: int
    head: int | None
    half: int | None
    write: bool


def _order(layout: KvLayout, reading: Reading, apart: bool = False) -> list[_Pass]:
    """The passes over each sequence. apart: head by head, whoever reads them."""
    if not reading.by_head and not apart:
        return [
            _Pass(0, None, half, write)
            for half in layout.passes
            for write in (*[False] * reading.repeats, True)
        ]
    # a query head, or the group of them, is a part; the first one of a KV head writes
    return [
        _Pass(query * reading.by_head, query // reading.repeats, half, write)
        for query in range(layout.kv_heads * reading.repeats)
        for half in layout.passes
        for write in ((False, True) if query % reading.repeats == 0 else (False,))
    ]


def _passes(
    layout: KvLayout, units: list[Units], middle: IntArray, last: IntArray, layer: int,
    reading: Reading,
) -> Extents:  # fmt: skip
    """Of each sequence (its units in `units`) tokens [0, middle) read and [middle, last) written;
    in a layer with a window those that token `middle` attends to, and those that stay."""
    window, ring = layout.reach(layer)
    since = np.zeros_like(middle) if window is None else np.maximum(middle + 1 - window, 0)
    begin = middle if ring is None else np.maximum(middle, last - ring)
    order = _order(layout, reading)
    span = np.arange(len(units) * len(order))
    sequence = span // len(order)
    writes = np.tile([each.write for each in order], len(units))
    first = np.where(writes, begin[sequence], since[sequence])
    end = np.where(writes, last[sequence], middle[sequence])
    return _extents(layout, units, order, _Spans(span, first, end), layer, reading)


def _chosen(
    layout: KvLayout, sparse: Sparse, units: list[Units], requests: IntArray, middle: IntArray,
    last: IntArray, layer: int, reading: Reading,
) -> Extents:  # fmt: skip
    """As `_passes`, but of tokens [0, middle) those that are chosen, once for all rows of a
    request."""
    order = _order(layout, reading, sparse.apart)
    pieces = []
    for place, (request, stored) in enumerate(zip(requests.tolist(), middle.tolist(), strict=True)):
        heads = {each.head or 0 if sparse.apart else 0 for each in order}
        runs = {head: sparse.runs(stored, request, layer, head) for head in heads}
        behind = np.array([stored]), last[place : place + 1]
        for turn, each in enumerate(order, place * len(order)):
            first, end = behind if each.write else runs[each.head or 0 if sparse.apart else 0]
            pieces.append(_Spans(np.full(len(first), turn), first, end))
    spans = _Spans(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    return _extents(layout, units, order, spans, layer, reading)


class _Spans(NamedTuple):
    """Tokens [first, end) of a sequence that a pass moves, int64 (n,). `span`: which pass of which
    sequence, never decreasing."""

    span: IntArray
    first: IntArray
    end: IntArray


def _extents(
    layout: KvLayout, units: list[Units], order: list[_Pass], spans: _Spans, layer: int,
    reading: Reading,
) -> Extents:  # fmt: skip
    """The extents of `spans`, in order."""
    owner, write = np.array([(each.owner, each.write) for each in order]).T
    pieces, at = _pieces_of(units, spans.span // len(order), spans.first, spans.end)
    span = spans.span[at]
    turn = span % len(order)
    half = None if layout.passes == (None,) else np.array([each.half for each in order])[turn]
    head = None if order[0].head is None else np.array([each.head for each in order])[turn]
    parts = Parts(*pieces, half, head, span)
    runs, group = layout.runs(parts, layout.place(layer)[1])
    sequence, turn = group // len(order), group % len(order)
    parts_each = int(owner.max()) + 1
    extents = Extents(runs.start, runs.size, write[turn] == 1, sequence * parts_each + owner[turn])
    if reading.spread != "head_major":
        return extents
    place = owner[turn] * len(units) + sequence
    return extents._replace(owner=place).of(np.argsort(place, kind="stable"))


def _pieces_of(
    units: list[Units], sequence: IntArray, first: IntArray, end: IntArray
) -> tuple[tuple[IntArray, IntArray, IntArray, IntArray], IntArray]:
    """((first slot and size of the unit, first token in it, tokens) of the pieces of units that
    hold tokens [first, end) of these sequences, none empty, the row that each is of), in order."""
    flat = Units(*(np.concatenate(column) for column in zip(*units, strict=True)))
    total = np.array([each.tokens.sum() for each in units])
    base = (np.cumsum(total) - total)[sequence]
    ends = np.cumsum(flat.tokens)
    low, high = base + first, base + np.minimum(end, total[sequence])
    rows = np.flatnonzero(high > low)
    low, high = low[rows], high[rows]
    begin = np.searchsorted(ends, low, side="right")
    counts = np.searchsorted(ends, high) - begin + 1
    at = np.repeat(np.arange(len(rows)), counts)
    unit = begin[at] + np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)
    passed = (ends - flat.tokens)[unit]
    low, high = np.maximum(low[at], passed), np.minimum(high[at], ends[unit])
    held = np.flatnonzero(high > low)
    unit = unit[held]
    low = low[held]
    pieces = (flat.start[unit], flat.size[unit], low - passed[held], high[held] - low)
    return pieces, rows[at[held]]


def migration(
    allocator: Allocator,
    moves: Sequence[Migration],
    layer: int,
    piece_bytes: int,
    copies: Sequence[Migration] = (),
) -> Extents:
    """One layer of contiguous copies, in pieces: each is read from the old place and written to the
    new. moves: from an old reservation to the one that its request has now; copies: on write, from
    block to block."""
    layout, reserved = allocator.layout, allocator.reserved
    (group, index), (_, ring) = layout.place(layer), layout.reach(layer)
    places = [(m, int(reserved[m.request])) for m in moves] + [(m, m.left) for m in copies]
    starts, sizes, owners = [], [], []
    regions = [(layout, half) for half in layout.passes]
    if layout.index is not None:
        regions.append((layout.index, None))
    for place, (move, room) in enumerate(places):
        source = layout.unit_of(move.source, move.tokens, move.left, group)
        target = layout.unit_of(move.target, move.tokens, room, group)
        first = 0 if ring is None else max(move.tokens - ring, 0)
        for region, half in regions:
            old = region.extents(source, index, half, first)
            new = region.extents(target, index, half, first)
            # the same bytes in the same order, in runs that need not be the same
            ends = np.union1d(np.cumsum(old.size), np.cumsum(new.size))
            common = np.diff(ends, prepend=0)
            offset, part = _pieces(common, piece_bytes)
            at = np.repeat(ends - common, -(-common // piece_bytes)) + offset
            starts.append(np.stack((_at(old, at), _at(new, at)), 1).ravel())
            sizes.append(np.repeat(part, 2))
            owners.append(np.full(2 * len(part), place, np.int64))
    start = np.concatenate(starts)
    write = np.arange(len(start)) % 2 == 1
    return Extents(start, np.concatenate(sizes), write, np.concatenate(owners))


def _at(runs: ByteRuns, offset: IntArray) -> IntArray:
    """Addresses of the bytes at these offsets into the runs."""
    ends = np.cumsum(runs.size)
    index = np.searchsorted(ends, offset, side="right")
    return runs.start[index] + offset - (ends - runs.size)[index]


def weights(
    model: TransformerSpec, layer: int, tile_bytes: int, touched: IntArray | None = None
) -> Extents:
    """One layer's weights in tiles, in order; layers lie one after another from address 0.

    touched: the routed experts that are read, where the layer has any: gate and up of each, then
    down of each, then what lies beside them (`TransformerSpec.expert_bytes`); None: all.
    """
    start, end = model.layer_weight_edges[layer : layer + 2]
    starts, sizes = [start], [end - start]
    experts, each = model.experts, model.expert_bytes(layer)
    if experts is not None and any(each) and touched is not None:
        at = end - experts.held * sum(each)
        sizes = [at - start]
        for part in filter(None, each):
            starts += [at + expert * part for expert in touched.tolist()]
            sizes += [part] * len(touched)
            at += experts.held * part
    whole = np.array(sizes, np.int64)
    offset, size = _pieces(whole, tile_bytes)
    first = np.repeat(np.array(starts, np.int64), -(-whole // tile_bytes))
    reads = np.zeros(len(size), np.bool_)
    return Extents(first + offset, size, reads, np.zeros(len(size), np.int64))


def contiguous(start: int, size: int, parts: int) -> Extents:
    """Bytes that lie together, in equal parts, each a sequence of its own: whatever the `spread`,
    each of `parts` engines reads one long contiguous extent."""
    edges = start + np.arange(parts + 1) * size // parts
    owner = np.arange(parts)
    return Extents(edges[:-1], np.diff(edges), np.zeros(parts, np.bool_), owner)


def deal(extents: Extents, engines: int, spread: Spread, align: int) -> Descriptors:
    """Descriptors of `extents` spread over `engines`; slices are cut at multiples of `align`
    bytes."""
    if extents.ahead:
        kernels = slice(extents.ahead), slice(extents.ahead, None)
        return joined([deal(extents.of(each), engines, spread, align) for each in kernels])
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
        offset, size = _pieces(part.size, piece)
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


def _pieces(sizes: IntArray, piece: int) -> tuple[IntArray, IntArray]:
    """(offset in its extent, bytes) of every piece of extents of these sizes."""
    counts = -(-sizes // piece)
    nth = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = nth * piece
    return offset, np.minimum(np.repeat(sizes, counts) - offset, piece)


def _slices(extents: Extents, engines: int, align: int) -> Descriptors:
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
