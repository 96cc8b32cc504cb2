"""The contract of placements: what of the weights and of the KV lies in which memory of a card.

A card with one memory needs none. A placement says three things. How many bytes of all there are
each memory has to hold (`held`), which decides how many tokens fit. How the bytes that a step reads
part among the memories (`read`), which decides how long it takes. And where the bytes of one stream
lie in one memory (`part`), which is what is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError, Strict, nearest
from hwmodel.specs.further_memory import MAIN as MAIN

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
What = Literal["weights", "kv"]
EVERYTHING: tuple[What, ...] = get_args(What)


class MemorySupply(NamedTuple):
    """What a memory of a card has."""

    capacity_bytes: int
    bandwidth: float
    """Bytes a second at the peak, or what its crossing lets through."""


class Heat(Protocol):
    """How popular the routed experts of a model are."""

    def chances(self, tokens: int) -> FloatArray:
        """Of being read in a step that routes so many tokens, most popular expert first."""

    def ranked(self, layer: int) -> IntArray:
        """The experts of a layer, most popular first."""


class PlacedExperts(NamedTuple):
    """The routed experts that a card has, as they lie among its weights."""

    many: int
    """Of a layer."""
    each_bytes: int
    """Of one in all layers together."""
    beside_bytes: int
    """Of weights that every step reads beside them."""
    tensors: Callable[[int], tuple[int, tuple[int, ...]]]
    """Of a layer: where its experts begin, and what one has in each of the tensors that follow one
    another from there on, each with all experts; zeros where it has none."""


class Heads(NamedTuple):
    """How the KV heads of a token lie side by side."""

    many: int
    each_bytes: int


class CardSpace(NamedTuple):
    """What is placed: sizes in bytes, of one card."""

    weight_bytes: int
    slots: int
    """Of tokens."""
    slot_bytes: int
    """Of one slot in all layers."""
    layers: int
    """With KV."""
    layers_first: bool
    """Whether the KV of a layer lies together, the first layer's first."""
    run_bytes: int | None = None
    """Of a slot in each of the planes that the KV consists of; None: they differ."""
    heads: Heads | None = None
    """None: those of a token do not lie side by side, or there is one."""
    experts: PlacedExperts | None = None
    heat: Heat | None = None
    """None: the model has no routed experts, or it is not known yet."""


class PlacedBatch(NamedTuple):
    """What a step reads the KV and weights of."""

    tokens: IntArray
    """Of the requests that decode, int64 (n,)."""
    units: Callable[[], tuple[IntArray, IntArray]]
    """(first slot, tokens) of the units that hold the KV, int64 (m,) each."""
    routed: int
    """Tokens that pass through experts."""


class PlacedExtents(NamedTuple):
    """Bytes of a stream that lie in one memory; int64 (n,) each."""

    start: IntArray
    """Offset in what this memory has of the weights, or of the KV."""
    size: IntArray
    source: IntArray
    """Which extent of the stream it is of."""


class PlacementOptions(Strict):
    """Options of a placement, as `serving.memories` gives them; `name` is its name in
    `policies.placements.placements.PLACEMENTS`."""

    name: str


class Placement:
    """Of one card: what lies in one memory, and the rest parted among `names`. Raises
    DescriptionError where its options name a memory that is not there.

    options: the placement's own. supplies: of the memories by name, `main` first.
    """

    Options: ClassVar[type[PlacementOptions]]
    in_one: ClassVar[dict[What, str]] = {}
    """Of what lies in one memory, the option that names it; the rest is parted."""
    elsewhere: ClassVar[tuple[str, str] | None] = None
    """The option that names a second memory, and what lies in main."""
    grows: ClassVar[bool] = False
    """Whether what `read` says changes from step to step."""

    def __init__(self, options: Any, supplies: Mapping[str, MemorySupply]) -> None:
        self.options, self.supplies = options, supplies
        self._in_one = {
            what: self._known(key, getattr(options, key)) for what, key in self.in_one.items()
        }
        self.names = [MAIN]
        if self.elsewhere is not None:
            key, there = self.elsewhere
            self.names.append(self._known(key, getattr(options, key)))
            if self.names[1] == MAIN:
                raise DescriptionError(f"memories.{key}: {there} in main; expected another")

    def shares(self, space: CardSpace) -> list[float]:
        """Of what is parted, the share in each memory of `names`."""
        raise NotImplementedError

    def shares_read(self, space: CardSpace, batch: PlacedBatch) -> list[float]:
        """Of what a step reads of it."""
        return self.shares(space)

    def split(
        self, own: int, start: IntArray, size: IntArray, layer: int, space: CardSpace
    ) -> PlacedExtents:
        """What lies in the memory at a place in `names` of these extents of what is parted, as
        `part` has them."""
        raise NotImplementedError

    def held(self, what: What, space: CardSpace) -> dict[str, float]:
        """Bytes that each memory has room for, as shares of all the bytes there are. Their sum is 1
        where every byte lies once."""
        if what in self._in_one:
            return {self._in_one[what]: 1.0}
        return dict(zip(self.names, self.shares(space), strict=True))

    def kept(self, slot_bytes: int, sequences: int) -> dict[str, int]:
        """Bytes of each memory that are kept beside that, for as many sequences at once."""
        return {}

    def read(
        self, what: What, space: CardSpace, batch: PlacedBatch | None = None
    ) -> dict[str, float]:
        """Share of the bytes that are read in each memory. batch: of a step; None: in the long
        run."""
        if what in self._in_one or batch is None or not self.grows:
            return self.held(what, space)
        return dict(zip(self.names, self.shares_read(space, batch), strict=True))

    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: CardSpace
    ) -> PlacedExtents:
        """What lies in a memory of these extents, which are offsets into all the weights, or into
        all the KV as if it lay in one memory; those of KV are of one layer."""
        if what in self._in_one:
            return whole(start, size) if memory == self._in_one[what] else none()
        if memory not in self.names:
            return none()
        return self.split(self.names.index(memory), start, size, layer, space)

    @property
    def moves(self) -> bool:
        """Whether tokens change their memory as requests grow."""
        return bool(self.carried)

    @property
    def carried(self) -> dict[str, float]:
        """Of the bytes that a token is then read and written by, the share in each memory."""
        return {}

    def moved(self, before: IntArray, after: IntArray) -> IntArray:
        """Tokens that do so as requests grow from so many to so many, int64 (n,) each."""
        return np.zeros_like(before)

    def layers(self, memory: str, space: CardSpace) -> range:
        """The layers of which a memory has KV."""
        return range(space.layers) if self.held("kv", space).get(memory) else range(0)

    def _known(self, key: str, memory: str) -> str:
        if memory not in self.supplies:
            raise DescriptionError(
                f"memories.{key}: the device has no memory {memory!r}; "
                f"{nearest(memory, list(self.supplies))}"
            )
        return memory


def whole(start: IntArray, size: IntArray) -> PlacedExtents:
    """All of these extents, where they are."""
    return PlacedExtents(start, size, np.arange(len(start)))


def cut(start: IntArray, size: IntArray, edges: IntArray, moved: IntArray) -> PlacedExtents:
    """What extents have in the spans that lie in this memory. edges: where spans begin, rising,
    the first before all extents, int64 (n,); moved: where each begins here, -1: elsewhere, int64
    (n,)."""
    first = np.searchsorted(edges, start, "right") - 1
    counts = np.searchsorted(edges, start + size, "left") - first
    source = np.repeat(np.arange(len(start)), counts)
    span = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    here = moved[span] >= 0
    source, span = source[here], span[here]
    ends = np.append(edges[1:], np.iinfo(np.int64).max)
    low = np.maximum(start[source], edges[span])
    high = np.minimum((start + size)[source], ends[span])
    return joined(moved[span] + low - edges[span], high - low, source)


def joined(start: IntArray, size: IntArray, source: IntArray) -> PlacedExtents:
    """Pieces of an extent that touch in their memory are one."""
    if not len(start):
        return none()
    apart = (start[1:] != (start + size)[:-1]) | (source[1:] != source[:-1])
    first = np.flatnonzero(np.concatenate(([True], apart)))
    return PlacedExtents(start[first], np.add.reduceat(size, first), source[first])


def none() -> PlacedExtents:
    """No extents."""
    empty = np.zeros(0, np.int64)
    return PlacedExtents(empty, empty, empty)
