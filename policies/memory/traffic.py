"""The accesses of one layer's phases, as extents at their real addresses.

`policies.memory.dealing` deals them to engines.

Where query heads that share a KV head are not served by one read (`grouped: false`), every read of
K and V comes as often as query heads share it: one after the other, or with `head` and `head_major`
each for an engine of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.specs.device import Device
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import Migration
from policies.allocators.kv_layout import ByteRuns, KvLayout, Parts, Units
from policies.allocators.kv_sparse import Sparse
from policies.engines.scheduled_step import Chunk
from policies.requests.requests import IntArray

Spread = Literal["slice", "sequence", "split", "head", "head_major", "head_slice", "head_turn"]


class Reading(NamedTuple):
    """How a device's cores read the KV of a model."""

    spread: Spread = "slice"
    repeats: int = 1
    """How often K and V are read."""
    drift: float = 0.0
    """As of `policies.memory.dealing.deal`."""

    @property
    def by_head(self) -> bool:
        """Whether each KV head is a part of its own."""
        return self.spread.startswith("head")


def reading(device: Device, model: TransformerSpec) -> Reading:
    """As the device's description has it."""
    assert device.accelerator is not None
    work = device.accelerator.work
    repeats = 1 if work.grouped else model.heads // model.kv_heads
    return Reading(work.spread, repeats, work.drift)


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


class WrittenRows(NamedTuple):
    """Tokens of each sequence that a step writes behind those that were stored, int64 (n,) each:
    its last one and its drafts, of which not all stay."""

    stored: IntArray
    written: IntArray


def attention(
    allocator: Allocator, requests: IntArray, layer: int, reading: Reading = _PLAIN,
    rows: WrittenRows | None = None,
) -> Extents:  # fmt: skip
    """One layer of a decode step whose new tokens have their slots already: for each request the K
    of the tokens before and the new ones' K written, then the same of V. Where tokens are chosen,
    their index comes first, for all requests, and then the K and V of those chosen.

    reading: as its `repeats` and its parts are. rows: where drafts are verified; None: one of
    each.
    """
    group, _ = allocator.layout.place(layer)
    units = [allocator.layer_units(request, group) for request in requests.tolist()]
    new, layout = np.ones(len(requests), np.int64), allocator.layout
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
    if reading.spread not in ("head_major", "head_slice", "head_turn"):
        return extents
    place = owner[turn] * len(units) + sequence
    part = owner[turn] if reading.spread == "head_turn" else place
    return extents._replace(owner=part).of(np.argsort(place, kind="stable"))


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
            offset, part = cut_into(common, piece_bytes)
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
    offset, size = cut_into(whole, tile_bytes)
    first = np.repeat(np.array(starts, np.int64), -(-whole // tile_bytes))
    reads = np.zeros(len(size), np.bool_)
    return Extents(first + offset, size, reads, np.zeros(len(size), np.int64))


def contiguous(start: int, size: int, parts: int) -> Extents:
    """Bytes that lie together, in equal parts, each a sequence of its own: whatever the `spread`,
    each of `parts` engines reads one long contiguous extent."""
    edges = start + np.arange(parts + 1) * size // parts
    owner = np.arange(parts)
    return Extents(edges[:-1], np.diff(edges), np.zeros(parts, np.bool_), owner)


def cut_into(sizes: IntArray, piece: int) -> tuple[IntArray, IntArray]:
    """(offset in its extent, bytes) of every piece of extents of these sizes."""
    counts = -(-sizes // piece)
    nth = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = nth * piece
    return offset, np.minimum(np.repeat(sizes, counts) - offset, piece)
