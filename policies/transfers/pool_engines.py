"""v1 in a prefill pool and in a decode pool, between which KV moves.

At the prefill side a request has its first token and ends, but holds its blocks until all of its
KV has arrived elsewhere. At the decode side it gets blocks, waits until its KV is there, and
decodes from its second token on; if it is preempted there, it is computed again there (vLLM). It
also waits for KV of other requests that it found while that was on its way. A request that lost
its KV comes again with the tokens that it has made, as a longer prompt. With asynchronous
scheduling memory is free a step later; KV moves once it is computed, as without.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from policies.allocators.allocator import Allocator
from policies.allocators.block_allocator import BlockAllocator
from policies.engines.engine import Offered
from policies.engines.engine_v1 import EngineV1, EngineV1Spec
from policies.engines.scheduled_step import Chunk, Step
from policies.requests.requests import IntArray
from policies.transfers.refusals import require_blocks, require_plain


class PoolEngine(EngineV1):
    """What both sides have in common. `stuck`: nothing can be scheduled until something comes."""

    def __init__(self, spec: EngineV1Spec, allocator: Allocator, offered: Offered) -> None:
        """Raises DescriptionError for what is not modelled."""
        own = offered._replace(output_tokens=offered.output_tokens.copy())
        super().__init__(spec, allocator, own)
        require_plain("serving.pools", self, late=True)
        require_blocks("serving.pools", allocator)
        assert isinstance(allocator, BlockAllocator)
        self.block = allocator.block
        self.stuck = False

    @property
    def busy(self) -> bool:
        return len(self.running) > len(self._foreseen) or (self.waits and not self.stuck)

    @property
    def holding(self) -> bool:
        return len(self.holders) > 0

    def schedule(self) -> Step:
        step = super().schedule()
        self.stuck = step.empty and not step.preempted
        return step

    def table(self, request: int) -> IntArray:
        """Its block ids, int64 (blocks,)."""
        return self.allocator.units(request).start // self.block

    def expect(self, request: int, made: int) -> None:
        """A request that has made so many tokens elsewhere will come."""
        raise NotImplementedError

    def landed(self, request: int) -> None:
        """All of its KV has moved."""
        raise NotImplementedError


class PrefillEngine(PoolEngine):
    """`held`: requests with a first token whose KV has not left. That token is foreseen to be the
    last here (vLLM: `max_tokens: 1`)."""

    def __init__(self, spec: EngineV1Spec, allocator: Allocator, offered: Offered) -> None:
        super().__init__(spec, allocator, offered)
        self._outputs, self._stops = offered.output_tokens, False
        self.held: dict[int, None] = {}
        self._left: set[int] = set()  # whose KV was gone before their end was known here

    @property
    def holders(self) -> IntArray:
        return np.array(list(self.held), np.int64)

    def expect(self, request: int, made: int) -> None:
        self.output[request], self.left[request] = made + 1, 1

    def complete(self, step: Step, rounds: int) -> tuple[list[int], list[int]]:
        prefilled, ended = super().complete(step, rounds)
        return prefilled, [request for request in ended if not self._moves(request)]

    def _moves(self, request: int) -> bool:
        return bool(self.output[request] < self._outputs[request])

    def _free(self, ended: list[int]) -> None:
        staying = [each for each in ended if self._moves(each) and each not in self._left]
        self.held |= dict.fromkeys(staying)
        if going := [each for each in ended if each not in self.held]:
            self._left.difference_update(going)
            super()._free(going)

    def landed(self, request: int) -> None:
        self.stuck = False
        if request in self.held:
            del self.held[request]
            super()._free([request])
        else:
            self._left.add(request)


class DecodeEngine(PoolEngine):
    """`loading`: requests with memory whose KV is on its way, and the tokens they found here."""

    def __init__(self, spec: EngineV1Spec, allocator: Allocator, offered: Offered) -> None:
        super().__init__(spec, allocator, offered)
        self.remote: set[int] = set()
        """Requests in line whose KV is elsewhere."""
        self.loading: dict[int, int] = {}
        self.asked: list[int] = []
        """Those that got their memory since the driver looked last."""
        self._after: dict[int, set[int]] = {}
        """Of those that load: requests on whose KV they wait, themselves among them."""
        self._back: deque[int] = deque()

    @property
    def busy(self) -> bool:
        return super().busy or bool(self._back)

    @property
    def holders(self) -> IntArray:
        return np.array([*self.loading, *self._back], np.int64)

    def expect(self, request: int, made: int) -> None:
        self.left[request] = self.output[request] - made - 1
        self.remote.add(request)

    def landed(self, request: int) -> None:
        for other, awaited in list(self._after.items()):
            awaited.discard(request)
            if not awaited:
                del self._after[other], self.loading[other]
                self._back.append(other)
        self.stuck = False

    def cancel(self, request: int) -> list[int]:
        """Its KV will not come: it, and others that wait for this KV as well, give their memory
        back; all of them."""
        gone = {request}
        while more := {
            other for other, awaited in self._after.items() if awaited & gone and other not in gone
        }:
            gone |= more
        found = [other for other in self.loading if other in gone]
        for other in reversed(found):
            assert self._caching is not None
            self._caching.release_known(other, self.loading.pop(other))
            del self._after[other]
        self.stuck = False
        return found

    def schedule(self) -> Step:
        while self._back and len(self.running) < self._cap:
            at = len(self.running) - self._partial
            self.running = np.insert(self.running, at, self._back.popleft())
            self.changes += 1
        return super().schedule()

    def _try(self, request: int, sequences: int, budget: int) -> tuple[str, Chunk | None]:
        if request not in self.remote:
            return super()._try(request, sequences, budget)
        total, demand = self._total(request), self._demand(request)
        growing, caching = self._on_demand, self._caching
        assert growing is not None and caching is not None
        cached = caching.cached(request, total - 2, demand)
        whole = self.spec.admit_on == "input"
        fits = not whole or growing.fits(total, request, demand)
        if not fits or not self.allocator.reserve(request, demand, total - 1):
            return "kv_memory", None
        self.waiting.remove(request)
        self.remote.remove(request)
        self._after[request] = {request} | self._owners(request, cached)
        self.loading[request] = cached
        self.asked.append(request)
        return "offered_load", None

    def _owners(self, request: int, cached: int) -> set[int]:
        """Requests that load what a request found here."""
        if not cached or not self.loading:
            return set()
        mine, found = self.table(request)[: cached // self.block], set()
        for other, had in self.loading.items():
            if np.isin(mine, self.table(other)[had // self.block :]).any():
                found.add(other)
        return found
