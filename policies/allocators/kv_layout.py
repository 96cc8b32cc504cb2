"""Where the K and V of a token slot lie in device memory.

The KV region starts above the weights. A layout is the order of its dimensions, outermost first:

    layer   one of the model's layers
    kv      K or V
    unit    an allocation unit: a block, or a whole reservation
    head    a KV head (of the card, under tensor parallelism)
    token   a token of the unit

and innermost the numbers of one head. Of latent attention there is one head and no K and V: `kv`
has one index, the latent, wherever it stands. `unit` comes before `token`. Dimensions before `unit`
part the region into planes, each with all `slots` of the device, and slot t of a plane starts at t
times what a slot has there; the other dimensions are cut inside the unit, which is as long as its
slots. A contiguous reservation is a unit like a block, in the same formula.

So vLLM's (2, num_blocks, block, heads, dim) a layer is [layer, kv, unit, token, head], and with
reservations instead of blocks it is the layout of systems before paging.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hwmodel.description.description import DescriptionError
from hwmodel.specs.device import Device
from hwmodel.specs.kv_order import LAYOUTS, Dim, Dims
from hwmodel.specs.transformer import TransformerSpec
from policies.allocators.kv_apart import Apart, Areas, Indices, Parts, Shape, apart
from policies.allocators.kv_groups import KvGroups
from policies.allocators.kv_sparse import Sparse
from policies.placements.card_memories import CardMemories
from policies.placements.experts import experts_of
from policies.placements.placement import CardSpace, Heads, Heat
from policies.requests.requests import IntArray

KV_ALIGN_BYTES = 2 << 20
"""The KV region starts at a multiple of this (assumed: a 2 MiB page of device memory)."""
SLOT_ALIGN_TOKENS = 64
"""The number of slots is a multiple of this (assumed), so that blocks of up to 64 tokens tile
it."""


class DoesNotFit(DescriptionError):
    """A device has no room for a model, or for one of its requests."""


class Units(NamedTuple):
    """Allocation units of one request in token order, int64 (n,): first slot, stored tokens, size
    in slots."""

    start: IntArray
    tokens: IntArray
    size: IntArray


class ByteRuns(NamedTuple):
    """Physical byte runs in reading order, int64 (n,)."""

    start: IntArray
    size: IntArray


@dataclass(frozen=True)
class KvLayout:
    """Addresses of the KV region (see the module). Sizes in bytes, `slots` in tokens."""

    base: int
    slots: int
    layers: int
    kv_heads: int
    head_bytes: int
    dims: Dims = LAYOUTS["layer_kv_token"]
    halves: int = 2
    """K and V, or 1: one latent."""
    groups: KvGroups | None = None
    """Of the layers, where some have a sliding window; then `layers` are those of a group, and a
    slot is a token in them."""
    apart: Apart | None = None
    """What the format has beside the numbers of each head."""
    sparse: Sparse | None = None
    """What decoding reads of each request, where it does not read all."""
    pad_bytes: int = 0
    """Behind each row, what a token has in the dimensions after `token`; a run of whole rows is
    read and written with its pads."""

    @property
    def half_bytes(self) -> int:
        """K (or V), or the latent, of one token in one layer, without what lies apart."""
        return self.kv_heads * self.head_bytes

    @property
    def token_bytes(self) -> int:
        """K and V of one slot, with room for what varies."""
        beside = 0 if self.apart is None else self.apart.token_bytes(self.kv_heads)
        pads = self._rows * self.pad_bytes
        return self.halves * self.layers * (self.half_bytes + beside) + self.index_bytes + pads

    @property
    def _rows(self) -> int:
        """Rows of a slot: one for each index of the dimensions before the tokens."""
        sizes = {"layer": self.layers, "kv": self.halves, "head": self.kv_heads, "unit": 1}
        return math.prod(sizes[dim] for dim in self.dims[: self.dims.index("token")])

    @property
    def index_bytes(self) -> int:
        """What a slot has in all layers by which tokens are chosen."""
        return 0 if self.sparse is None else self.layers * self.sparse.index_bytes

    @property
    def layer_index_bytes(self) -> int:
        """The same in one layer."""
        return self.index_bytes // self.layers

    @property
    def index(self) -> KvLayout | None:
        """Where that lies: in the layout's order, above all KV."""
        if not self.index_bytes or self.sparse is None:
            return None
        base, each = self.base + self.bytes - self.slots * self.index_bytes, self.sparse.index_bytes
        return replace(
            self,
            base=base,
            kv_heads=1,
            head_bytes=each,
            halves=1,
            apart=None,
            sparse=None,
            pad_bytes=0,
        )

    @property
    def parts(self) -> int:
        """Groups of layers; a short request has as many slots a token."""
        return 1 if self.groups is None else len(self.groups.kept)

    @property
    def tokens(self) -> int:
        """Tokens that it holds in all layers: of requests as long as the shortest window at most.
        vLLM's "GPU KV cache size"."""
        return self.slots // self.parts

    @property
    def whole_token_bytes(self) -> int:
        """What such a token takes; groups may be padded."""
        return self.parts * self.token_bytes

    def slots_of(self, tokens: Any) -> Any:
        """Slots that requests of so many tokens need: an int, or int64 (n,)."""
        return tokens if self.groups is None else self.groups.slots_of(tokens)

    def tokens_in(self, slots: Any) -> Any:
        """Tokens that so many slots hold: an int, or int64 (n,)."""
        return slots if self.groups is None else self.groups.tokens_in(slots)

    def place(self, layer: int) -> tuple[int, int]:
        """Group of a layer of the model, and which of its layers it is."""
        return (0, layer) if self.groups is None else self.groups.place[layer]

    def reach(self, layer: int) -> tuple[int | None, int | None]:
        """(window, ring) of a layer of the model: tokens it attends to, itself included, and those
        that it has slots for; None: all."""
        if self.groups is None:
            return None, None
        ring = self.groups.kept[self.groups.place[layer][0]]
        return self.groups.windows[layer], ring if self.groups.kind == "ring" else None

    def unit_of(self, start: int, tokens: int, slots: int, group: int) -> Units:
        """Where one run of `slots` slots has a request's tokens in the layers of a group: rings lie
        one after another, and a ring is a unit that comes again and again."""
        size, first = slots, start
        if self.groups is not None and self.groups.kind == "ring":
            room = int(self.groups.tokens_in(slots))
            sizes = [min(room, kept or room) for kept in self.groups.kept]
            size, first = sizes[group], start + sum(sizes[:group])
        turns = max(-(-tokens // size), 1)
        held = np.full(turns, size, np.int64)
        held[-1] = tokens - (turns - 1) * size
        return Units(np.full(turns, first, np.int64), held, np.full(turns, size, np.int64))

    @property
    def bytes(self) -> int:
        """Size of the KV region."""
        return self.slots * self.token_bytes

    @property
    def passes(self) -> tuple[int | None, ...]:
        """What a reader takes one after the other: K, then V; or both (None) where they lie
        together in a unit, or are one latent."""
        together = self.halves == 1 or self.dims.index("kv") > self.dims.index("unit")
        return (None,) if together else (0, 1)

    def extents(
        self, units: Units, layer: int, half: int | None, first: int = 0, last: int | None = None,
        head: int | None = None,
    ) -> ByteRuns:  # fmt: skip
        """Byte runs that hold tokens [first, last) of a request in one layer's K (half 0), V (1) or
        both (None), of one KV head or of all (None); in the layout's own order."""
        before = np.cumsum(units.tokens) - units.tokens
        low = np.clip(first - before, 0, units.tokens)
        high = units.tokens if last is None else np.clip(last - before, 0, units.tokens)
        held = np.flatnonzero(high > low)
        group = np.zeros(len(held), np.int64)
        start, size = units.start[held], units.size[held]
        parts = Parts(start, size, low[held], (high - low)[held], half, head, group)
        return self.runs(parts, layer)[0]

    def runs(self, parts: Parts, layer: int) -> tuple[ByteRuns, IntArray]:
        """Byte runs of `parts` in one layer, none of which is empty, and the group of each; within
        a group in the layout's own order."""
        if self.apart is not None:
            records = self.apart.records(self.kv_heads, self.head_bytes)
            shape = Shape(self.dims, self.halves, self.kv_heads, self.head_bytes, records)
            return _joined(*self.apart.runs(shape, self._regions(records), parts, layer))
        walk = _Walk(self, {"layer": layer, "kv": parts.half, "head": parts.head})
        place = self.base + parts.start * walk.slot_bytes + walk.inside(parts.low, parts.size)
        start, size, part = walk.runs(place, parts)
        return _joined(start, size, parts.group[part])

    def _regions(self, records: list[tuple[int, int]]) -> list[Areas]:
        """Regions one above the other, each in the layout's order: (heads, bytes of each)."""
        regions: list[Areas] = []
        base = self.base
        for heads, size in records:
            region = replace(
                self, base=base, kv_heads=heads, head_bytes=size, apart=None, sparse=None
            )
            regions.append(region._areas)
            base += region.bytes
        return regions

    def _areas(self, start: IntArray, size: IntArray, index: Indices) -> tuple[IntArray, int]:
        """(first byte, bytes a token) of what units of `size` slots from slot `start` on have at
        these indices of the dimensions before the tokens."""
        before = self.dims[: self.dims.index("token")]
        walk = _Walk(self, {dim: index[dim] if dim in before else None for dim in index})
        place = self.base + start * walk.slot_bytes + walk.inside(np.zeros_like(size), size)
        return place, walk.token_bytes


class _Walk:
    """How one reads through a layout with some indices chosen (None: all of them)."""

    def __init__(self, layout: KvLayout, chosen: dict[str, IntArray | int | None]) -> None:
        self._sizes = {"layer": layout.layers, "kv": layout.halves, "head": layout.kv_heads}
        self._chosen = chosen
        self._slots = layout.slots
        self._head_bytes = layout.head_bytes
        dims = layout.dims
        unit, token = dims.index("unit"), dims.index("token")
        self._outer, self._inner = dims[:unit], dims[unit + 1 : token]
        self._last = dims[token + 1 :]
        self.token_bytes = self._count(self._last) * layout.head_bytes + layout.pad_bytes
        """Of one token, all that comes after it in the order."""
        self.slot_bytes = self._count(self._inner) * self.token_bytes
        """Of one slot in a plane."""
        self.free_before = [dim for dim in (*self._outer, *self._inner) if chosen[dim] is None]
        """Dimensions before the tokens that are read whole."""

    def _count(self, dims: tuple[Dim, ...]) -> int:
        return math.prod(self._sizes[dim] for dim in dims)

    def step(self, dim: Dim, size: IntArray) -> tuple[int, IntArray | int, bool]:
        """(how many, bytes from one to the next in units of `size` slots, whether it is a plane's)
        of a dimension before the tokens."""
        if dim in self._outer:
            later = self._outer[self._outer.index(dim) + 1 :]
            return self._sizes[dim], self._count(later) * self._slots * self.slot_bytes, True
        later = self._inner[self._inner.index(dim) + 1 :]
        return self._sizes[dim], self._count(later) * self.token_bytes * size, False

    def inside(self, low: IntArray, size: IntArray) -> IntArray:
        """Offset of what is chosen, and of token `low`, from where a unit starts."""
        offset = low * self.token_bytes
        for dim in (*self._outer, *self._inner):
            if (index := self._chosen[dim]) is not None:
                offset = offset + index * self.step(dim, size)[1]
        for place, dim in enumerate(self._last):
            if (index := self._chosen[dim]) is not None:
                offset = offset + index * self._rest(place)
        return offset

    def _rest(self, place: int) -> int:
        """Bytes of one index of a dimension after the token."""
        return self._count(self._last[place + 1 :]) * self._head_bytes

    def runs(self, place: IntArray, parts: Parts) -> tuple[IntArray, IntArray, IntArray]:
        """(start, bytes, part) of the runs of tokens from `place` on, for every index of the free
        dimensions before them: in a group planes outermost, then parts, then what is inside
        them."""
        planes = np.zeros(1, np.int64)
        within = np.zeros((len(place), 1), np.int64)
        for dim in self.free_before:
            many, step, plane = self.step(dim, parts.size)
            index = np.arange(many, dtype=np.int64)
            if plane:
                planes = (planes[:, None] + index * step).ravel()
            else:
                steps_of = np.broadcast_to(np.asarray(step), place.shape)[:, None, None]
                within = (within[:, :, None] + index * steps_of).reshape(
                    len(place), within.shape[1] * many
                )
        starts = planes[:, None, None] + place[:, None] + within
        part = np.broadcast_to(np.arange(len(place))[:, None], starts.shape).ravel()
        start = starts.ravel()
        if len(planes) > 1:
            order = np.argsort(parts.group[part], kind="stable")
            start, part = start[order], part[order]
        return self._tokens(start, parts.tokens[part], part)

    def _tokens(
        self, start: IntArray, count: IntArray, part: IntArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Runs of tokens, or of what is chosen of each of them."""
        fixed = [place for place, dim in enumerate(self._last) if self._chosen[dim] is not None]
        if not fixed:
            return start, count * self.token_bytes, part
        first = np.repeat(np.cumsum(count) - count, count)
        nth = np.arange(int(count.sum()), dtype=np.int64) - first
        start = np.repeat(start, count) + nth * self.token_bytes
        part = np.repeat(part, count)
        for place, dim in enumerate(self._last[: fixed[-1]]):
            if self._chosen[dim] is None:
                index = np.arange(self._sizes[dim], dtype=np.int64)
                start = (start[:, None] + index * self._rest(place)).ravel()
                part = np.repeat(part, len(index))
        return start, np.full(len(start), self._rest(fixed[-1]), np.int64), part


def _joined(start: IntArray, size: IntArray, group: IntArray) -> tuple[ByteRuns, IntArray]:
    """Runs that touch in order within a group become one."""
    if not len(start):
        return ByteRuns(start, size), group
    apart = (start[1:] != (start + size)[:-1]) | (group[1:] != group[:-1])
    first = np.flatnonzero(np.concatenate(([True], apart)))
    return ByteRuns(start[first], np.add.reduceat(size, first)), group[first]


def kv_layout(
    device: Device, model: TransformerSpec, gpu_memory_utilization: float = 0.9,
    dims: Dims = LAYOUTS["layer_kv_token"], kept_bytes: int = 0, tokens: int | None = None,
    groups: KvGroups | None = None, sparse: Sparse | None = None, beside_bytes: int = 0,
    card: CardMemories | None = None, sequences: int = 1, pad_bytes: int = 0,
) -> KvLayout:  # fmt: skip
    """The KV region of a device that holds a model: its share of the capacity less the weights and
    `kept_bytes`, for others; or room for so many `tokens`. groups: of a model with windows. sparse:
    what decoding reads. beside_bytes: of a token, which lie above all slots. card: where several
    memories have parts of it; sequences: that then run at once. pad_bytes: behind each row.

    Raises DoesNotFit if the weights leave no room for `SLOT_ALIGN_TOKENS` tokens, or the device has
    none for `tokens`; DescriptionError if the model has windows and no groups.
    """
    layers, parts = model.kv_layers, 1
    if groups is not None:
        layers, parts = groups.size, len(groups.kept)
    elif model.window is not None:
        raise DescriptionError(
            f"{model.name} has sliding-window layers of {model.window.tokens} tokens, whose KV is "
            "modelled in serving only; window: null has full attention in every layer"
        )
    base = -(-model.weight_bytes // KV_ALIGN_BYTES) * KV_ALIGN_BYTES
    budget = int(device.capacity_bytes * gpu_memory_utilization) - kept_bytes
    halves, beside = model.attention.halves, apart(model)
    if pad_bytes and (beside is not None or card is not None):
        raise DescriptionError("kv_pad: not with a KV format that has entries beside its numbers,"
                               " nor with several memories")  # fmt: skip
    one = KvLayout(
        base, 1, layers, model.kv_heads, model.kv_head_bytes, dims, halves, groups, beside,
        sparse, pad_bytes,
    )  # fmt: skip
    slot_bytes = (
        one.token_bytes + beside_bytes + one.layers * (0 if sparse is None else sparse.padding)
    )
    if card is not None:
        return replace(one, slots=_placed_slots(
            card, one, model, slot_bytes, kept_bytes, sequences, gpu_memory_utilization, tokens
        ))  # fmt: skip
    slots = max(budget - base, 0) // slot_bytes
    slots -= slots % SLOT_ALIGN_TOKENS
    if tokens is not None:
        slots = tokens * parts
        if base + slots * slot_bytes + kept_bytes > device.capacity_bytes:
            raise DoesNotFit(
                f"kv_tokens: {device.name} has no room for {tokens} tokens of {model.name},"
                f" {parts * slot_bytes} B each, beside {base + kept_bytes} B"
            )
    if not slots:
        least = (base + SLOT_ALIGN_TOKENS * slot_bytes + kept_bytes) / gpu_memory_utilization
        less = f", less {_gib(kept_bytes)} for activations and the like" if kept_bytes else ""
        raise DoesNotFit(
            f"{device.name} is too small for {model.name}: the weights take"
            f" {_gib(model.weight_bytes)} of {_gib(budget)} ({gpu_memory_utilization:g} of"
            f" {_gib(device.capacity_bytes)}{less}), and {SLOT_ALIGN_TOKENS} tokens of KV need"
            f" {_gib(SLOT_ALIGN_TOKENS * parts * slot_bytes)}; expected a capacity of"
            f" {math.ceil(least / 2**20)}MiB or more, narrower weights or more cards"
        )
    return replace(one, slots=slots)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.4g} GiB"


def _placed_slots(
    card: CardMemories, one: KvLayout, model: TransformerSpec, slot_bytes: int, kept_bytes: int,
    sequences: int, share: float, tokens: int | None,
) -> int:  # fmt: skip
    """Token slots that the memories of a card have room for together, or `tokens`. Raises
    DescriptionError where there is none."""
    space = space_of(model, one)._replace(slot_bytes=slot_bytes)
    slots, fullest = card.room(space, kept_bytes, sequences, share if tokens is None else 1.0)
    slots -= slots % SLOT_ALIGN_TOKENS
    wanted = SLOT_ALIGN_TOKENS if tokens is None else tokens * one.parts
    if slots < wanted:
        raise DoesNotFit(
            f"{model.name}, {model.weight_bytes} B of weights: memory {fullest} of the device has"
            f" room for {slots} of {wanted} tokens, {slot_bytes} B each, beside what else"
            " serving.memories keeps there"
        )
    return slots if tokens is None else wanted


def space_of(model: TransformerSpec, layout: KvLayout, heat: Heat | None = None) -> CardSpace:
    """What is placed of a card's model and its KV."""
    plain = layout.apart is None and not layout.index_bytes
    walk = _Walk(layout, {"layer": None, "kv": None, "head": None})
    side_by_side = plain and layout.dims[-1] == "head" and layout.kv_heads > 1
    return CardSpace(
        int(model.weight_bytes), layout.slots, layout.token_bytes, layout.layers,
        layout.dims[0] == "layer" and layout.groups is None,
        walk.slot_bytes if plain else None,
        Heads(layout.kv_heads, layout.head_bytes) if side_by_side else None,
        experts_of(model), heat,
    )  # fmt: skip
