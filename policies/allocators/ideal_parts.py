"""What the ceiling can do beside its contract, each a part that it has (`ideal.py`): find what a
preempted request had stored, swap, store drafts, keep states."""

from __future__ import annotations

from typing import Any, Protocol

from policies.allocators.allocator import Demand, Limits
from policies.allocators.capabilities import Caches, Drafts, KeepsStates, Remembers, Swaps
from policies.allocators.kv_layout import ByteRuns, KvLayout
from policies.allocators.state_places import behind
from policies.requests.requests import IntArray


class IdealHolder(Protocol):
    """What these parts may ask of it; arrays by request are as in `IdealAllocator`."""

    layout: KvLayout
    limits: Limits
    stored: IntArray
    reserved: IntArray
    left: IntArray
    whole: IntArray
    waits: bool

    @property
    def free_slots(self) -> int: ...
    def slots_for(self, tokens: Any) -> Any: ...
    def enter(self, request: int, tokens: int) -> None: ...
    def grow(self, request: int, tokens: int) -> bool: ...
    def release(self, request: int) -> int: ...


class IdealCaching(Caches, Remembers):
    """All that a preempted request had stored."""

    def __init__(self, ideal: IdealHolder) -> None:
        self._of = ideal

    def cached(self, request: int, limit: int, demand: Demand | None = None) -> int:
        return min(int(self._of.left[request]), limit)

    def release(self, request: int) -> int:
        return self._of.release(request)

    def finished(self, request: int, prompt: int, output: int) -> None:
        self._of.left[request] = 0


class IdealSwaps(Swaps):
    """As many slots are given up, and taken again."""

    def __init__(self, ideal: IdealHolder) -> None:
        self._of = ideal
        self._away: set[int] = set()

    def swap_out(self, request: int) -> int:
        self._of.release(request)
        self._away.add(request)
        return int(self._of.left[request])

    def swap_in(self, request: int) -> bool:
        if request not in self._away:
            raise KeyError(f"request {request} is not swapped out")
        of, tokens = self._of, int(self._of.left[request])
        slots = int(of.slots_for(tokens))
        if max(slots, of.whole[request] * of.waits) > of.free_slots:
            return False
        self._away.remove(request)
        of.enter(request, tokens)
        return True


class IdealDrafts(Drafts):
    """Drafts take no slots, as in no real allocator."""

    def __init__(self, ideal: IdealHolder) -> None:
        self._of = ideal

    def store_ahead(
        self, requests: IntArray, kept: IntArray, beyond: IntArray, unseen: IntArray
    ) -> int:
        for at, (request, tokens) in enumerate(zip(requests.tolist(), kept.tolist(), strict=True)):
            if not self._of.grow(request, tokens):
                return at
        return len(requests)


class IdealStates(KeepsStates):
    """In the last slots of a request, copy by copy."""

    def __init__(self, ideal: IdealHolder) -> None:
        self._of, self.limits = ideal, ideal.limits

    def state_runs(self, request: int, copy: int, nth: int, size: int) -> ByteRuns:
        start, held = int(self._of.reserved[:request].sum()), int(self._of.reserved[request])
        place = self.limits.state_place(held, copy, nth)
        return behind(self._of.layout, start, held, *place, size)
