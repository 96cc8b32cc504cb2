"""Reservations: a contiguous run whose size is decided when the request is admitted.

The base of every policy that needs to say no more than how large that run is.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol

from policies.allocators.allocator import ContiguousAllocator, Demand, Limits
from policies.allocators.kv_layout import KvLayout


class Space(Protocol):
    """Contiguous slots to take runs from: `policies.allocators.arena.Arena`,
    `policies.allocators.buddy.Buddy`."""

    free: int

    @property
    def largest_hole(self) -> int: ...

    def take(self, size: int) -> int | None: ...

    def give_back(self, start: int, size: int) -> None: ...


class ReservingAllocator(ContiguousAllocator):
    """Runs of `size(request, demand)` slots out of one space, with room for all samples."""

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
        size = self.size(request, demand)
        start = self._space.take(size)
        if start is None:
            return False
        self._occupy(request, demand, start, size, tokens)
        return True

    def release(self, request: int) -> int:
        self._require(request)
        self._space.give_back(int(self.start[request]), int(self.reserved[request]))
        return self._vacate(request)
