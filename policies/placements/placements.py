"""The placements that `serving.memories` can name, and the shares of each. To add one, write a
class and a line of the table; `apart` is the default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, SerializeAsAny

from hwmodel.description.description import DescriptionError
from hwmodel.description.units import PositiveBytes
from hwmodel.description.written import Chosen
from policies.placements.placement import (
    EVERYTHING,
    MAIN,
    CardSpace,
    Heads,
    IntArray,
    MemorySupply,
    PlacedBatch,
    PlacedExperts,
    PlacedExtents,
    Placement,
    PlacementOptions,
    What,
    cut,
    none,
    whole,
)
from policies.placements.turn import Turn, dealt, nearest_turn

Share = Annotated[float, Field(gt=0, lt=1)]


class ApartOptions(PlacementOptions):
    """Options of `apart`."""

    name: Literal["apart"] = "apart"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str = MAIN
    """The memory that has the KV."""


class WeightsApart(Placement):
    """All weights in one memory and all KV in one, the same or another."""

    Options = ApartOptions
    in_one = {"weights": "weights", "kv": "kv"}


class InterleavedOptions(PlacementOptions):
    """Options of `interleaved`."""

    name: Literal["interleaved"] = "interleaved"
    what: list[What] = ["weights", "kv"]
    """What is interleaved; the rest lies in the main memory."""
    by: Literal["bandwidth", "capacity"] | dict[str, Annotated[int, Field(ge=0)]] = "bandwidth"
    """In proportion to what; or the pages of each memory in a turn."""
    page: PositiveBytes = 4 << 10
    """Consecutive bytes that lie in one memory (assumed: the host's page)."""


class Interleaved(Placement):
    """Page p of the weights, or of the KV, lies in the memory whose place in the turn it is.

    In proportion to their bandwidths several memories read as one whose bandwidth is their sum, as
    far as the pages of what is read at a time come out even; what decides is the memory whose share
    takes the longest. The weighted interleaving of Linux deals pages to nodes in the same way
    (`mempolicy`, MPOL_WEIGHTED_INTERLEAVE).
    """

    Options = InterleavedOptions

    def __init__(self, options: Any, supplies: Mapping[str, MemorySupply]) -> None:
        super().__init__(options, supplies)
        turn = options.by
        if isinstance(turn, str):
            wanted = [
                each.bandwidth if turn == "bandwidth" else each.capacity_bytes
                for each in supplies.values()
            ]
            turn = dict(zip(supplies, nearest_turn(wanted), strict=True))
        for name in turn:
            self._known("by", name)
        pages = {name: many for name, many in turn.items() if many}
        if not pages:
            raise DescriptionError("memories.by: no memory has a page; expected one at least")
        self.names = list(pages)
        self._in_one = {what: MAIN for what in EVERYTHING if what not in options.what}
        self._turn = Turn(dealt(list(pages.values())), len(pages), options.page)

    def shares(self, space: CardSpace) -> list[float]:
        return [float(each) for each in self._turn.shares]

    def split(
        self, own: int, start: IntArray, size: IntArray, layer: int, space: CardSpace
    ) -> PlacedExtents:
        return self._turn.part(start, size, own)


class ByLayerOptions(PlacementOptions):
    """Options of `by_layer`."""

    name: Literal["by_layer"] = "by_layer"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str
    """The memory that has the KV of the last layers."""
    share: Share = 0.5
    """Of the layers with KV, those whose KV lies there; rounded to whole layers."""


class ByLayer(Placement):
    """The KV of some layers in the main memory, that of the others in another one: whole layers, so
    that each is read at one memory's rate."""

    Options = ByLayerOptions
    in_one, elsewhere = {"weights": "weights"}, ("kv", "the first layers lie")

    def shares(self, space: CardSpace) -> list[float]:
        near = self._first(space) / space.layers
        return [near, 1.0 - near]

    def layers(self, memory: str, space: CardSpace) -> range:
        first = self._first(space)
        if memory == MAIN:
            return range(first)
        return range(first, space.layers) if memory == self.options.kv else range(0)

    def split(
        self, own: int, start: IntArray, size: IntArray, layer: int, space: CardSpace
    ) -> PlacedExtents:
        layers = self.layers(self.names[own], space)
        if layer not in layers:
            return none()
        plane = space.slots * space.slot_bytes // space.layers
        return whole(start - layers.start * plane, size)

    def _first(self, space: CardSpace) -> int:
        """The first layer that lies elsewhere."""
        if not space.layers_first:
            raise DescriptionError(
                "memories: by_layer needs the KV of a layer together; expected a kv_layout that"
                " begins with layer"
            )
        return space.layers - _some(self.options.share, space.layers)


class ByHeadOptions(PlacementOptions):
    """Options of `by_head`."""

    name: Literal["by_head"] = "by_head"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str
    """The memory that has the last heads."""
    share: Share = 0.25
    """Of the KV heads, those in it; rounded to whole heads."""


class ByHead(Placement):
    """Some KV heads of every layer in another memory, so that both are read in each layer's
    attention. In each memory the heads of a token that it has lie side by side."""

    Options = ByHeadOptions
    in_one, elsewhere = {"weights": "weights"}, ("kv", "the first heads lie")

    def shares(self, space: CardSpace) -> list[float]:
        heads = _heads(space)
        far = _some(self.options.share, heads.many) / heads.many
        return [1.0 - far, far]

    def split(
        self, own: int, start: IntArray, size: IntArray, layer: int, space: CardSpace
    ) -> PlacedExtents:
        heads = _heads(space)
        far = np.arange(heads.many) >= heads.many - _some(self.options.share, heads.many)
        return Turn(far.astype(np.int64), 2, heads.each_bytes).part(start, size, own)


class ByRequestOptions(PlacementOptions):
    """Options of `by_request`."""

    name: Literal["by_request"] = "by_request"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str
    """The memory that has the last slots."""
    share: Share | None = None
    """Of the slots, those in it. None: as the capacities beside the weights are."""


class ByRequest(Placement):
    """The first token slots in the main memory, the others in another one: a request is where its
    slots are.

    An allocator that gives a request one run has all of it in one memory, but for the one at the
    bound; where it takes the lowest hole, new requests come into the main memory until it is full.
    Blocks lie in either as they come free: lowest first with `free_list: sorted`. A request that is
    moved by compaction, or from a pool into a bucket, may come into the other memory: its tokens
    are read in one and written in the other.
    """

    Options = ByRequestOptions
    grows = True
    in_one, elsewhere = {"weights": "weights"}, ("kv", "the first slots lie")

    def shares(self, space: CardSpace) -> list[float]:
        far = self._far(space)
        return [1.0 - far, far]

    def shares_read(self, space: CardSpace, batch: PlacedBatch) -> list[float]:
        start, tokens = batch.units()
        if not (total := int(tokens.sum())):
            return self.shares(space)
        near = float(np.clip(self._bound(space) - start, 0, tokens).sum() / total)
        return [near, 1.0 - near]

    def split(
        self, own: int, start: IntArray, size: IntArray, layer: int, space: CardSpace
    ) -> PlacedExtents:
        if (run := space.run_bytes) is None:
            raise DescriptionError(
                "memories: by_request needs all KV of a slot in the layout's own planes; expected"
                " a format of KV without scales beside it, and no index of tokens"
            )
        plane = np.arange(space.slots * space.slot_bytes // (space.slots * run), dtype=np.int64)
        bound = self._bound(space)
        near, far = bound * run, (space.slots - bound) * run
        edges = np.stack((plane * (near + far), plane * (near + far) + near), 1)
        moved = np.full(edges.shape, -1)
        moved[:, own] = plane * (far if own else near)
        return cut(start, size, edges.ravel(), moved.ravel())

    def _far(self, space: CardSpace) -> float:
        """The share of the slots in the other memory."""
        if (share := self.options.share) is not None:
            return float(share)
        left = {name: self.supplies[name].capacity_bytes for name in self.names}
        if self.options.weights in left:
            left[self.options.weights] -= space.weight_bytes
        near, far = (max(each, 1) for each in left.values())
        return far / (near + far)

    def _bound(self, space: CardSpace) -> int:
        """Slots of the main memory."""
        return space.slots - round(space.slots * self._far(space))


class ByHeatOptions(PlacementOptions):
    """Options of `by_heat`."""

    name: Literal["by_heat"] = "by_heat"
    experts: str
    """The memory that has the least popular experts."""
    share: Share = 0.5
    """Of each layer's experts, those in it; rounded to whole experts."""
    kv: str = MAIN
    """The memory that has the KV."""


class ByHeat(Placement):
    """The least popular experts of each layer in another memory; the other weights lie in the main
    one.

    What a step reads there follows from how many tokens it routes: of a few, the popular experts
    are most of what is read, and a large batch reads all experts alike, however popular. How
    popular they are is `serving.routing.skew`; without it any experts are as good.
    """

    Options = ByHeatOptions
    grows = True
    in_one, elsewhere = {"kv": "kv"}, ("experts", "the popular ones lie")

    def shares(self, space: CardSpace) -> list[float]:
        experts = _experts(space)
        far = _some(self.options.share, experts.many) * experts.each_bytes / space.weight_bytes
        return [1.0 - far, far]

    def shares_read(self, space: CardSpace, batch: PlacedBatch) -> list[float]:
        if space.heat is None:
            return self.shares(space)
        experts = _experts(space)
        read = space.heat.chances(batch.routed) * experts.each_bytes
        cold = read[len(read) - _some(self.options.share, experts.many) :].sum()
        far = float(cold / (experts.beside_bytes + read.sum()))
        return [1.0 - far, far]

    def split(
        self, own: int, start: IntArray, size: IntArray, layer: int, space: CardSpace
    ) -> PlacedExtents:
        experts, heat = _experts(space), space.heat
        assert heat is not None, "what is simulated is routed"
        far = _some(self.options.share, experts.many)
        cold = np.zeros(experts.many, np.bool_)
        cold[heat.ranked(layer)[experts.many - far :]] = True
        before = far * sum(sum(experts.tensors(each)[1]) for each in range(layer))
        """Bytes of cold experts of the layers before."""
        first, tensors = experts.tensors(layer)
        edges, is_cold = [before, first], [False]  # what lies before this layer's experts
        for each in filter(None, tensors):
            edges += (edges[-1] + each * np.arange(1, experts.many + 1)).tolist()
            is_cold += cold.tolist()
        apart = np.array([*is_cold, False])
        gone = before + np.concatenate(([0], np.cumsum(np.diff(edges) * apart[:-1])))
        begin = gone if own else np.array(edges) - gone
        return cut(start, size, np.array(edges), np.where(apart == bool(own), begin, -1))


class RecentOptions(PlacementOptions):
    """Options of `recent`."""

    name: Literal["recent"] = "recent"
    weights: str = MAIN
    """The memory that has the weights."""
    kv: str
    """The memory that has all KV."""
    tokens: Annotated[int, Field(ge=1)]
    """Of each request that the main memory has as well."""
    moves: bool = False
    """Whether a token is moved as it leaves them, not written to both as it is made."""


class Recent(Placement):
    """The last tokens of each request in the main memory, all of its KV in another one.

    The main memory is a cache of what is newest, written through: a new token's KV goes to both,
    and what leaves the cache lies in the other memory already, so that nothing is moved. Attention
    reads the last tokens in the main memory and those before them in the other: of all KV, which
    lies in the other, their part is read there in extents as long. The main memory keeps room for
    as many sequences as may run at once. The second write of a token is not counted: it is one
    beside the thousands that its step reads.

    With `moves` a new token's KV goes to the main memory alone, and is read there and written in
    the other one as it leaves the last `tokens`: one token of each request a step, after the step's
    other phases (assumed). Of a prompt's chunk what is older than that is written where it belongs
    at once. The room that the last tokens leave in the other memory is not given to others
    (assumed).
    """

    Options = RecentOptions
    grows = True
    in_one = {"weights": "weights", "kv": "kv"}
    elsewhere = ("kv", "the last tokens lie")

    def kept(self, slot_bytes: int, sequences: int) -> dict[str, int]:
        return {MAIN: sequences * self.options.tokens * slot_bytes}

    def read(
        self, what: What, space: CardSpace, batch: PlacedBatch | None = None
    ) -> dict[str, float]:
        if what == "weights":
            return self.held(what, space)
        if batch is None or not len(batch.tokens):
            return {MAIN: 0.0, self.options.kv: 1.0}
        tokens = batch.tokens
        near = float(np.minimum(tokens, self.options.tokens).sum() / max(int(tokens.sum()), 1))
        return {MAIN: near, self.options.kv: 1.0 - near}

    @property
    def carried(self) -> dict[str, float]:
        return {MAIN: 0.5, self.options.kv: 0.5} if self.options.moves else {}

    def moved(self, before: IntArray, after: IntArray) -> IntArray:
        """Those that were among the last tokens, and are no more."""
        last = self.options.tokens
        return np.maximum(np.minimum(before, after - last), 0) - np.maximum(before - last, 0)


def _some(share: float, many: int) -> int:
    """A share of so many, rounded: one at least, and not all."""
    return min(max(round(share * many), 1), many - 1)


def _heads(space: CardSpace) -> Heads:
    if space.heads is None:
        raise DescriptionError(
            "memories: by_head needs several KV heads that lie side by side; expected a model"
            " without latent attention, a kv_layout that ends with head, and a format without"
            " scales beside the numbers"
        )
    return space.heads


def _experts(space: CardSpace) -> PlacedExperts:
    if space.experts is None:
        raise DescriptionError(
            "memories: by_heat needs all routed experts on each card; expected a model with"
            " experts, without expert_parallel"
        )
    return space.experts


PLACEMENTS: dict[str, type[Placement]] = {
    "apart": WeightsApart,
    "interleaved": Interleaved,
    "by_layer": ByLayer,
    "by_head": ByHead,
    "by_request": ByRequest,
    "by_heat": ByHeat,
    "recent": Recent,
}

_CHOSEN = Chosen(
    "placement", lambda: {name: each.Options for name, each in PLACEMENTS.items()},
    "apart", short=True,
)  # fmt: skip
PlacementChoice = Annotated[SerializeAsAny[PlacementOptions], _CHOSEN]
"""Field type: the options of one of the placements, chosen by `name`."""
