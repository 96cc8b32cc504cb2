"""The contract of placements: what of the weights and of the KV lies in which memory of a card.

A card with one memory needs none. A placement says three things. How many bytes of all there are
each memory has to hold (`held`), which decides how many tokens fit. How the bytes that a step reads
part among the memories (`read`), which decides how long it takes. And where the bytes of one stream
lie in one memory (`part`), which is what is simulated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodel.description.description import DescriptionError, Strict, nearest
from hwmodel.specs.further_memory import MAIN as MAIN

IntArray = NDArray[np.int64]
What = Literal["weights", "kv"]


class Supply(NamedTuple):
    """What a memory of a card has."""

    capacity_bytes: int
    bandwidth: float
    """Bytes a second at the peak, or what its crossing lets through."""


class Space(NamedTuple):
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


class Extents(NamedTuple):
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


class Placement(ABC):
    """Of one card. Raises DescriptionError where its options name a memory that is not there.

    options: the placement's own. supplies: of the memories by name, `main` first.
    """

    Options: ClassVar[type[PlacementOptions]]
    grows: ClassVar[bool] = False
    """Whether what `read` says changes from step to step."""

    def __init__(self, options: Any, supplies: Mapping[str, Supply]) -> None:
        self.options, self.supplies = options, supplies

    @abstractmethod
    def held(self, what: What) -> dict[str, float]:
        """Bytes that each memory has room for, as shares of all the bytes there are. Their sum is 1
        where every byte lies once."""

    def kept(self, slot_bytes: int, sequences: int) -> dict[str, int]:
        """Bytes of each memory that are kept beside that, for as many sequences at once."""
        return {}

    def read(self, what: What, tokens: IntArray | None = None) -> dict[str, float]:
        """Share of the bytes that are read in each memory. tokens: of the requests that decode,
        int64 (n,); None: in the long run."""
        return self.held(what)

    @abstractmethod
    def part(
        self, what: What, memory: str, start: IntArray, size: IntArray, layer: int, space: Space
    ) -> Extents:
        """What lies in a memory of these extents, which are offsets into all the weights, or into
        all the KV as if it lay in one memory; those of KV are of one layer."""

    def layers(self, memory: str, space: Space) -> range:
        """The layers of which a memory has KV."""
        return range(space.layers) if self.held("kv").get(memory) else range(0)

    def _known(self, key: str, memory: str) -> str:
        if memory not in self.supplies:
            raise DescriptionError(
                f"memories.{key}: the device has no memory {memory!r}; "
                f"{nearest(memory, list(self.supplies))}"
            )
        return memory


def whole(start: IntArray, size: IntArray) -> Extents:
    """All of these extents, where they are."""
    return Extents(start, size, np.arange(len(start)))


def none() -> Extents:
    """No extents."""
    empty = np.zeros(0, np.int64)
    return Extents(empty, empty, empty)
