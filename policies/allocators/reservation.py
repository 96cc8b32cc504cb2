"""Reservations: a contiguous run whose size is decided when the request is admitted.

`ContiguousAllocator` is the base of all policies with one run, `ReservingAllocator` of those that
only decide how large it is.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Literal, NamedTuple

import numpy as np

from policies.allocators.allocator import Allocator, Demand, Limits
from policies.allocators.capabilities import Swaps
from policies.allocators.kv_layout import KvLayout, Units
from policies.allocators.places import Space
from policies.requests.requests import IntArray


class _Away(NamedTuple):
    """A request that is swapped out."""

    demand: Demand
    stored: int


class ContiguousAllocator(Allocator, Swaps):
    """An allocator whose reservation is one run of slots, `start[request]`; a policy calls
    `_occupy` and `_vacate`. `_demands`: the demand of each resident at its admission."""

    def __init__(self, layout: KvLayout, requests: int, limits: Limits, options: Any) -> None:
        super().__init__(layout, requests, limits, options)
        self.start = np.full(requests, -1, np.int64)
        self._demands: dict[int, Demand] = {}
        self._away: dict[int, _Away] = {}

    @property
    def preempts(self) -> Literal["last", "itself"]:
        return "itself"

    def grow(self, request: int, tokens: int) -> bool:
        self._require(request)
        if self.stored[request] + tokens > self.reserved[request]:
            return False
        self.stored[request] += tokens
        return True

    def headroom(self, requests: IntArray, limit: int) -> int:
        room = (self.reserved[requests] - self.stored[requests]) // self.width[requests]
        return min(limit, int(room.min(initial=limit)))

    def advance(self, requests: IntArray, rounds: int) -> None:
        self.stored[requests] += rounds * self.width[requests]

    def extent_count(self, requests: IntArray) -> int:
        return len(requests)

    def units(self, request: int) -> Units:
        self._require(request)
        return Units(
            self.start[request : request + 1].copy(),
            self.stored[request : request + 1].copy(),
            self.reserved[request : request + 1].copy(),
        )

    def swap_out(self, request: int) -> int:
        self._require(request)
        demand, stored = self._demands[request], int(self.stored[request])
        if stored >= demand.prompt:  # the last token that was generated is not stored yet
            generated = (stored - demand.prompt) // demand.samples + 1
            demand = demand._replace(generated=generated)
        self._away[request] = _Away(demand, stored)
        self.release(request)
        return stored

    def swap_in(self, request: int) -> bool:
        away = self._away[request]
        if not self.reserve(request, away.demand, away.stored):
            return False
        del self._away[request]
        return True

    def _occupy(self, request: int, demand: Demand, start: int, slots: int, tokens: int) -> None:
        self.start[request] = start
        self._demands[request] = demand
        self._admit(request, slots, tokens, demand.samples)

    def _vacate(self, request: int) -> int:
        self.start[request] = -1
        del self._demands[request]
        return self._dismiss(request)


class ReservingAllocator(ContiguousAllocator):
    """Runs of `size(request, demand)` slots or more out of one space, with room for all samples."""

    def __init__(
        self, layout: KvLayout, requests: int, limits: Limits, options: Any, space: Space
    ) -> None:
        super().__init__(layout, requests, limits, options)
        self._space = space

    @abstractmethod
    def size(self, request: int, demand: Demand) -> int:
        """Slots to reserve for a request that is admitted now, or again."""

    @property
    def free_slots(self) -> int:
        return self._space.free

    @property
    def largest_hole(self) -> int:
        return self._space.largest_hole

    def reserve(self, request: int, demand: Demand, tokens: int) -> bool:
        if self.resident[request]:
            raise ValueError(f"request {request} already holds memory")
        place = self._space.place(self.size(request, demand))
        if place is None:
            return False
        self._occupy(request, demand, place.start, place.size, tokens)
        return True

    def release(self, request: int) -> int:
        self._require(request)
        self._space.give_back(int(self.start[request]), int(self.reserved[request]))
        return self._vacate(request)
