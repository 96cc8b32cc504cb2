"""Requests with memory on a card that do not run there until a transfer lands (`guests.py`)."""

from __future__ import annotations

import heapq
from operator import itemgetter

import numpy as np

from policies.allocators.capabilities import MovesBlocks
from policies.engines.engine import Engine
from policies.engines.memory_beside import NONE, Visitors
from policies.requests.requests import IntArray
from policies.transfers.fabric import Links
from policies.transfers.kv_link import Transfer


class Landing(Visitors):
    """Of one engine. Copies that come give way where nothing else could run."""

    def __init__(self, engine: Engine, links: Links) -> None:
        self.engine, self._links = engine, links
        self._blocks = engine.allocator.able(MovesBlocks)
        self.coming: set[int] = set()
        """Requests with memory here that run elsewhere."""
        self.stopped: set[int] = set()
        """Requests with memory here that run nowhere."""
        self.awaited: dict[int, Transfer] = {}
        """Of these, those that are to run here, and what brings the last of them."""
        self._landed: list[tuple[float, int, bool]] = []  # a heap: (when, whose, whether it runs)

    def busy(self, own: bool) -> bool:
        return own or bool(self.stopped)

    @property
    def holders(self) -> IntArray:
        return np.array([*self.coming, *self.stopped], np.int64)

    def gives_way(self) -> bool:
        if not (self.coming and self.engine.waiting):
            return False
        for request in list(self.coming):
            self.cancel(request)
        return True

    def drained(self) -> list[int]:
        """See `Visitors.drained`: those that would have run here."""
        begin_again = list(self.coming_at)
        for request in sorted(self.requests):
            self.engine.give_back(request)
        self.clear()
        return begin_again

    @property
    def requests(self) -> list[int]:
        """All of them."""
        return [*self.stopped, *self.coming]

    @property
    def due_s(self) -> float:
        """When something landed that the engine has not seen; inf: nothing has."""
        return self._landed[0][0] if self._landed else float("inf")

    @property
    def coming_at(self) -> dict[int, float]:
        """When all of the requests is here that are to run here, as far as is known."""
        there = {request: at_s for at_s, request, runs in sorted(self._landed) if runs}
        awaited = {request: each for request, each in self.awaited.items() if request not in there}
        ends_s = self._links.network.ends_s([*awaited.values()])
        coming = dict(zip(awaited, ends_s, strict=True))
        return there | dict(sorted(coming.items(), key=itemgetter(1, 0)))

    def host(self, request: int, tokens: int, blocks: IntArray = NONE) -> bool:
        """Memory for the first `tokens` of a request; False if there is no room. Also for more of
        one that comes already. blocks: they lie there."""
        allocator = self.engine.allocator
        if request in self.coming:
            return allocator.grow(request, tokens - int(allocator.stored[request]))
        demand = self.engine.demand(request)
        adopted = False
        if self._blocks is not None and len(blocks):
            adopted = self._blocks.adopt(request, demand, blocks, tokens)
        if not adopted and not allocator.receive(request, demand, tokens):
            return False
        allocator.pin(request)
        self.coming.add(request)
        self.engine.changes += 1
        return True

    def awaits(self, request: int, last: Transfer) -> None:
        """A request that comes runs when this has landed."""
        self.coming.remove(request)
        self.stopped.add(request)
        self.awaited[request] = last

    def cancel(self, request: int) -> None:
        """A request that comes does not."""
        if request in self.coming:
            self.coming.remove(request)
            self.engine.give_back(request)

    def over(self, request: int, at_s: float, runs: bool) -> None:
        """What a stopped request waits for has landed, or will not: it runs here from its next step
        on, or gives its memory back."""
        self.coming.discard(request)
        self.stopped.add(request)
        self.awaited.pop(request, None)
        heapq.heappush(self._landed, (at_s, request, runs))

    def land(self, now_s: float) -> None:
        """What has landed by now runs here, or is gone."""
        while self._landed and self._landed[0][0] <= now_s:
            _, request, runs = heapq.heappop(self._landed)
            self.stopped.remove(request)
            if runs:
                self.engine.allocator.unpin(request)
                self.engine.join(request)
            else:
                self.engine.give_back(request)

    def clear(self) -> None:
        """None of them is here any more."""
        for each in (self.stopped, self.coming, self.awaited, self._landed):
            each.clear()
