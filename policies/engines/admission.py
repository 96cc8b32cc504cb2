"""How an engine admits requests from its line.

The head of the line blocks the requests behind it, unless `batching` or `packing` let them
overtake. A request that was refused is not tried again while nothing has changed for it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator, Demand
from policies.engines.connected import Connected
from policies.engines.engine_requests import Offered
from policies.engines.scheduled_step import Chunk, Step


class Admission(Connected):
    """Requests of a line that are tried."""

    whole_inputs = False
    """Whether a request is admitted that has room for all its input, whatever a step computes."""

    def __init__(self, spec: Any, allocator: Allocator, offered: Offered) -> None:
        super().__init__(spec, allocator, offered)
        self._in_order = spec.packing == "arrival" and spec.batching == "any"
        self._tag = 0  # of the batch
        self._overtaken = 0  # times that the head of the line was overtaken
        self._sizes: dict[int, int] = {}  # that `fitting` found, of requests in line
        self._bounds: tuple[int, ...] = ()  # for which they hold
        self._fitting = (-1, 0, 0)  # (changes, free slots, what `fitting` found then)

    def fitting(self, step: Step) -> int:
        """Slots that the next requests in line would reserve if all free slots were one run, while
        KV memory limits the batch: what holes keep from them."""
        if self._contiguous is None or step.limit != "kv_memory" or step.preempted:
            return 0  # after a preemption nothing was tried
        free = self.allocator.free_slots
        if self._fitting[:2] != (self.changes, free):
            slots, sizes = 0, self._sizes
            if self._classifying is not None and self._classifying.bounds != self._bounds:
                self._bounds = self._classifying.bounds
                sizes.clear()
            for request in self.waiting:
                if (size := sizes.get(request, 0)) == 0:
                    size = self._contiguous.size(request, self.demand(request))
                    sizes[request] = size
                if slots + size > free:
                    break
                slots += size
            self._fitting = (self.changes, free, slots)
        return self._fitting[2]

    def chunk_rows(self, chunk: Chunk) -> int:
        """Tokens of the budget that a chunk of an admitted request takes."""
        if self.drafts is None:
            return chunk.tokens
        return chunk.tokens + self.drafts.spec.tokens * (chunk.request in self.drafts.padded)

    def wanted(self, request: int) -> int:
        """Slots that a request asks for with all of its tokens."""
        if self._contiguous is not None:
            return self._contiguous.size(request, self.demand(request))
        return int(self.allocator.layout.slots_of(self.total(request)))

    def _admit(self, chunks: list[Chunk], budget: int) -> str:
        """Admit from the head of the line; which of STEP_LIMITS ended it."""
        if self._back:
            budget = self._come_back(chunks, budget)
        limit = self._admit_from_line(chunks, budget)
        while limit == "kv_memory" and not len(self.running) and self._yield():
            limit = self._admit_from_line(chunks, budget)
        return limit

    def _admit_from_line(self, chunks: list[Chunk], budget: int) -> str:
        """As `_admit`, but for requests that hold memory."""
        admitted: list[int] = []
        sequences = len(self.running)
        limit = "offered_load"
        while self.waiting:
            limit = "batching"
            for place in self._candidates(bool(admitted)):
                request = self.waiting[place]
                limit, chunk = self._try(request, sequences, budget)
                if chunk is not None:
                    del self.waiting[place]
                    self._sizes.pop(request, None)
                    self._overtaken = self._overtaken + 1 if place else 0
                    admitted.append(request)
                    chunks.append(chunk)
                    sequences += 1
                    budget -= self.chunk_rows(chunk)
                    break
                if request in self.loading:  # it has left the line
                    break
                if limit == "kv_memory" and not (len(self.running) or admitted or self.holding):
                    raise self._never_fits(request)
            if limit != "offered_load":
                break
        if admitted:
            self.running = np.concatenate((self.running, np.array(admitted, np.int64)))
        return limit

    def _try(self, request: int, sequences: int, budget: int) -> tuple[str, Chunk | None]:
        """Admit a request if possible: (its step limit, its first chunk or None)."""
        if self.ending:
            own = self._sessions[request]
            if own >= 0 and (self._sessions[self.ending] == own).any():
                return "batching", None  # the answer is known a step before its memory is free
        if sequences >= self._cap:
            return "sequence_cap", None
        if not budget or self._partial:
            return "token_budget", None
        if self.connectors:
            self._resume(request)
        demand, total, cached = self.demand(request), self.total(request), 0
        alone = self.whole_inputs and not self.connectors
        if alone and self.allocator.refuses(request, demand, total):
            return "kv_memory", None
        if self._caching is not None:
            cached = self._caching.cached(request, self._findable(request, total), demand)
        here = self.connectors and self.whole(request)  # what is elsewhere is computed there
        if here and (found := self._matched(request, demand, cached, total)):
            return self._load(request, demand, cached, total, found, budget)
        tokens = self._chunk(total - cached, budget, total)
        if not tokens:
            return "token_budget", None
        if not self._admitted(request, demand, total, cached, budget):
            return "kv_memory", None
        if self.connectors:
            self._allocated(request, demand, cached, total, None)
        self._cached_tokens += cached
        self._partial = cached + tokens < total
        return "offered_load", Chunk(request, cached, tokens, not self._partial)

    def _admitted(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        """`_reserve`, or with room elsewhere."""
        if self._reserve(request, demand, total, cached, budget):
            for connector in self.connectors:
                connector.admitted(request)
            return True
        if not self.connectors:
            return False
        tokens = self._first_stored(total - cached, budget, total)
        asked = request, demand, total, cached, tokens
        return any(connector.admit(*asked) for connector in self.connectors)

    def _first_stored(self, rest: int, budget: int, total: int) -> int:
        """How many of the `rest` of a request's `total` tokens `_reserve` stores."""
        return self._chunk(rest, budget, total)

    def _chunk(self, rest: int, budget: int, total: int) -> int:
        return self._aligned(self._first_chunk(rest, budget), rest, total)

    def _aligned(self, tokens: int, rest: int, total: int) -> int:
        """So many of the `rest` of a request's `total` tokens as its next chunk has. Where states
        are kept at the ends of blocks it ends there, and at the last of them, from which the last
        chunk begins (vLLM: `_mamba_block_aligned_split`)."""
        if not (size := self._state_block):
            return tokens
        start = total - rest
        to_last = total // size * size - start
        if tokens < to_last:
            return max((start + tokens) // size * size - start, 0)
        return to_last if to_last > 0 else tokens

    def _candidates(self, begun: bool) -> Iterable[int]:
        """Places in line of the requests to try next, in this order. `begun`: a request was
        admitted in this step."""
        if self._in_order and not self._line_asks:
            return (0,)
        places: Iterable[int] = range(len(self.waiting))
        packs = self.spec.packing != "arrival"
        if self._line_asks:
            if (place := self._foremost()) >= 0:
                return (place,)
            most = max(self._cap, self.spec.packing_window) if packs else self._cap
            places = self._open(islice(self.waiting, most))
        if packs:
            reach = 1 if self._overtaken >= self._cap else self.spec.packing_window
            line = list(islice(places, reach))
            if self.spec.packing == "first_fit":
                return line
            return sorted(line, key=lambda place: -self._predicted.length[self.waiting[place]])
        if self.spec.batching == "any":
            return tuple(islice(places, 1))
        if self.spec.batching == "static":
            return tuple(islice(places, 1)) if begun or not len(self.running) else ()
        return self._place_in_line(begun, places)

    def _findable(self, request: int, total: int) -> int:
        """How many of a request's first `total` tokens may be cached: the last one is always
        computed, since the next token follows from it."""
        return total - 1

    @abstractmethod
    def _first_chunk(self, rest: int, budget: int) -> int:
        """How many of the `rest` of a request's tokens its first step computes; 0: it waits."""

    @abstractmethod
    def _reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        """Reserve slots to admit a request with `cached` of its `total` tokens in memory; False if
        there is no room."""

    def _has_batch(self, begun: bool) -> bool:
        """Whether there is a batch that admitted requests join."""
        return begun or len(self.running) > 0

    def _place_in_line(self, begun: bool, places: Iterable[int]) -> Iterable[int]:
        """The first of these places whose request has the batch's tag, if there is one. `begun`: a
        request was admitted in this step."""
        reach, renewed = self._cap - self._overtaken + 1, not self._has_batch(begun)
        for place in islice(places, reach):
            tag = self._tag_of(self.waiting[place])
            if renewed:
                self._tag, renewed = tag, False
            if tag == self._tag:
                return (place,)
        return ()

    def _tag_of(self, request: int) -> int:
        return (
            0 if self._classifying is None else self._classifying.tag(request, self.demand(request))
        )

    def _never_fits(self, request: int) -> DescriptionError:
        return DescriptionError(
            f"request {request} ({self.prompt[request]} prompt + {self.output[request]} output "
            f"tokens) does not fit the empty device's {self.allocator.slots} token slots, says "
            f"policy {self.allocator.options.name}"
        )
