"""How large the runs of an allocator are, and out of what they are taken."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Demand
from policies.allocators.arena import Arena, external_fragmentation
from policies.allocators.places import Place, SlotSpace
from policies.allocators.run_holder import RunHolder
from policies.allocators.slabs import space


class Sizes(ABC):
    """Chooses the place of each admission."""

    def __init__(self, runs: RunHolder, own: SlotSpace | None = None) -> None:
        """own: what runs are taken out of; None: what the options describe."""
        self._of = runs

    @property
    @abstractmethod
    def free(self) -> int:
        """Slots that no reservation holds."""

    @property
    @abstractmethod
    def largest_hole(self) -> int:
        """Slots of the largest reservation that could succeed now."""

    @property
    def fragmentation(self) -> float:
        """Share of the free slots that no reservation can have."""
        return external_fragmentation(self.free, self.largest_hole)

    @property
    @abstractmethod
    def reach(self) -> int:
        """Slots of the largest reservation when empty."""

    @property
    def preempts(self) -> Literal["last", "itself"]:
        """See `Allocator.preempts`."""
        return "itself"

    @abstractmethod
    def place(self, request: int, demand: Demand, tokens: int) -> Place | None:
        """A place for a request that is admitted with its first `tokens`; None (nothing changes):
        it has to wait."""

    @abstractmethod
    def give_back(self, place: Place) -> None:
        """Free a place."""


class OneSpace(Sizes):
    """Runs of `size(request, demand)` slots or more, as the allocator says, out of one space."""

    def __init__(self, runs: RunHolder, own: SlotSpace | None = None) -> None:
        super().__init__(runs)
        options = runs.options
        self.space = own or space(options.space, 0, runs.layout.slots, options.fit)

    @property
    def free(self) -> int:
        return self.space.free

    @property
    def largest_hole(self) -> int:
        return self.space.largest_hole

    @property
    def reach(self) -> int:
        return self._of.layout.slots

    def place(self, request: int, demand: Demand, tokens: int) -> Place | None:
        """As `Sizes.place`. Raises DescriptionError where the size is too small for them."""
        size, own = checked_size(self._of, request, demand), self.space
        place = own.place(size)
        if place is None and isinstance(own, Arena) and self._of.make_room(own, size):
            place = own.place(size)
        if place is not None and tokens > self._of.room_in(place.size):
            raise DescriptionError(
                f"policy {self._of.options.name}: size gave request {request} {size} slots, too "
                f"few for its first {tokens} tokens"
            )
        return place

    def give_back(self, place: Place) -> None:
        self.space.give_back(*place)


def checked_size(runs: RunHolder, request: int, demand: Demand) -> int:
    """`size` of an allocator, which a plug-in may have written. Raises DescriptionError where it is
    no whole number."""
    size = runs.size(request, demand)
    if not isinstance(size, int | np.integer) or size < 1:
        raise DescriptionError(
            f"policy {runs.options.name}: {type(runs).__name__}.size of request {request}: "
            f"expected a whole number of slots, 1 or more; got {size!r}"
        )
    return size
