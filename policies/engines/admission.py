"""How an engine admits requests from its line.

The head of the line blocks the requests behind it, unless `batching` or `packing` let them
overtake. A request that was refused is not tried again while nothing has changed for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np

from policies.allocators.allocator import Demand
from policies.allocators.kv_layout import DoesNotFit
from policies.engines.engine_requests import EngineRequests
from policies.engines.scheduled_step import Chunk, Step


class WaitingLine:
    """Requests that wait, and are tried."""

    def __init__(self, engine: EngineRequests) -> None:
        self._engine, spec = engine, engine.spec
        self._in_order = spec.packing == "arrival" and spec.batching == "any"
        self._tag = 0  # of the batch
        self._overtaken = 0  # times that the head of the line was overtaken
        self._sizes: dict[int, int] = {}  # that `fitting` found, of requests in line
        self._bounds: tuple[int, ...] = ()  # for which they hold
        self._fitting = (-1, 0, 0)  # (changes, free slots, what `fitting` found then)
        self.early = False
        """Whether what the allocator refuses as a whole is not tried: nobody has a part of it."""

    def fitting(self, step: Step) -> int:
        """Slots that the next requests in line would reserve if all free slots were one run, while
        KV memory limits the batch: what holes keep from them."""
        if self._engine.scheduler.swapped:
            return 0  # those return first
        if self._engine.contiguous is None or step.limit != "kv_memory" or step.preempted:
            return 0  # after a preemption nothing was tried
        free = self._engine.allocator.free_slots
        if self._fitting[:2] != (self._engine.changes, free):
            slots, sizes = 0, self._sizes
            if (
                self._engine.classifying is not None
                and self._engine.classifying.bounds != self._bounds
            ):
                self._bounds = self._engine.classifying.bounds
                sizes.clear()
            for request in self._engine.waiting:
                if (size := sizes.get(request, 0)) == 0:
                    size = self._engine.contiguous.size(request, self._engine.demand(request))
                    sizes[request] = size
                if slots + size > free:
                    break
                slots += size
            self._fitting = (self._engine.changes, free, slots)
        return self._fitting[2]

    def wanted(self, request: int) -> int:
        """Slots that a request asks for with all of its tokens."""
        if self._engine.contiguous is not None:
            return self._engine.contiguous.size(request, self._engine.demand(request))
        return int(self._engine.allocator.layout.slots_of(self._engine.total(request)))

    def admit(self, chunks: list[Chunk], budget: int) -> str:
        """Admit from the head of the line; which of STEP_LIMITS ended it."""
        engine = self._engine
        engine.scheduler.orders()
        if engine.loads.back:
            budget = engine.loads.come_back(chunks, budget)
        limit = self._admit_from_line(chunks, budget)
        while limit == "kv_memory" and not len(engine.running) and engine.loads.gives_up():
            limit = self._admit_from_line(chunks, budget)
        return limit

    def _admit_from_line(self, chunks: list[Chunk], budget: int) -> str:
        """As `_admit`, but for requests that hold memory."""
        engine = self._engine
        admitted: list[int] = []
        sequences = len(engine.running)
        limit = "offered_load"
        while engine.waiting:
            limit = "batching"
            for place in self._candidates(bool(admitted)):
                request = engine.waiting[place]
                limit, chunk = self._try(request, sequences, budget)
                if chunk is not None:
                    engine.scheduler.begun(request, chunk)
                    del engine.waiting[place]
                    self._sizes.pop(request, None)
                    self._overtaken = self._overtaken + 1 if place else 0
                    admitted.append(request)
                    chunks.append(chunk)
                    sequences += 1
                    budget -= engine.growth.chunk_rows(chunk)
                    break
                if request in engine.loads.loading:  # it has left the line
                    break
                if limit == "kv_memory" and not (
                    len(engine.running) or admitted or engine.loads.holding
                ):
                    raise self.never_fits(request)
            if limit != "offered_load":
                break
        if admitted:
            engine.running = np.concatenate((engine.running, np.array(admitted, np.int64)))
        return limit

    def _try(self, request: int, sequences: int, budget: int) -> tuple[str, Chunk | None]:
        """Admit a request if possible: (its step limit, its first chunk or None)."""
        engine = self._engine
        if engine.ending:
            own = engine.sessions[request]
            if own >= 0 and (engine.sessions[engine.ending] == own).any():
                return "batching", None  # the answer is known a step before its memory is free
        if sequences >= engine.cap:
            return "sequence_cap", None
        if not budget or engine.partial:
            return "token_budget", None
        engine.loads.resume(request)
        demand, total, cached = engine.demand(request), engine.total(request), 0
        if self.early and engine.allocator.refuses(request, demand, total):
            return "kv_memory", None
        if engine.caching is not None:
            cached = engine.caching.cached(
                request, engine.scheduler.findable(request, total), demand
            )
        if found := engine.loads.matched(request, demand, cached, total):
            return engine.loads.load(request, demand, cached, total, found, budget)
        tokens = self.chunk(total - cached, budget, total)
        if not tokens:
            return "token_budget", None
        if not self.admitted(request, demand, total, cached, budget):
            return "kv_memory", None
        engine.loads.allocated(request, demand, cached, total, None)
        engine.cached_tokens += cached
        engine.partial = cached + tokens < total
        return "offered_load", Chunk(request, cached, tokens, not engine.partial)

    def admitted(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        """`_reserve`, or with room elsewhere."""
        engine = self._engine
        if engine.scheduler.reserve(request, demand, total, cached, budget):
            for rooms in engine.loads.rooms:
                rooms.admitted(request)
            return True
        tokens = engine.scheduler.first_stored(total - cached, budget, total)
        asked = request, demand, total, cached, tokens
        return any(rooms.admit(*asked) for rooms in engine.loads.rooms)

    def chunk(self, rest: int, budget: int, total: int) -> int:
        return self.aligned(self._engine.scheduler.first_chunk(rest, budget), rest, total)

    def aligned(self, tokens: int, rest: int, total: int) -> int:
        """So many of the `rest` of a request's `total` tokens as its next chunk has. Where states
        are kept at the ends of blocks it ends there, and at the last of them, from which the last
        chunk begins (vLLM: `_mamba_block_aligned_split`)."""
        if not (size := self._engine.state_block):
            return tokens
        start = total - rest
        to_last = total // size * size - start
        if tokens < to_last:
            return max((start + tokens) // size * size - start, 0)
        return to_last if to_last > 0 else tokens

    def _candidates(self, begun: bool) -> Iterable[int]:
        """Places in line of the requests to try next, in this order. `begun`: a request was
        admitted in this step."""
        engine = self._engine
        if self._in_order and not engine.loads.line_asks:
            return (0,)
        places: Iterable[int] = range(len(engine.waiting))
        packs = engine.spec.packing != "arrival"
        if engine.loads.line_asks:
            if (place := engine.loads.foremost()) >= 0:
                return (place,)
            most = max(engine.cap, engine.spec.packing_window) if packs else engine.cap
            places = engine.loads.open(islice(engine.waiting, most))
        if packs:
            reach = 1 if self._overtaken >= engine.cap else engine.spec.packing_window
            line = list(islice(places, reach))
            if engine.spec.packing == "first_fit":
                return line
            return sorted(line, key=lambda place: -engine.predicted.length[engine.waiting[place]])
        if engine.spec.batching == "any":
            return tuple(islice(places, 1))
        if engine.spec.batching == "static":
            return tuple(islice(places, 1)) if begun or not len(engine.running) else ()
        return self._place_in_line(begun, places)

    def _place_in_line(self, begun: bool, places: Iterable[int]) -> Iterable[int]:
        """The first of these places whose request has the batch's tag, if there is one. `begun`: a
        request was admitted in this step."""
        reach, renewed = (
            self._engine.cap - self._overtaken + 1,
            not self._engine.scheduler.has_batch(begun),
        )
        for place in islice(places, reach):
            tag = self._tag_of(self._engine.waiting[place])
            if renewed:
                self._tag, renewed = tag, False
            if tag == self._tag:
                return (place,)
        return ()

    def _tag_of(self, request: int) -> int:
        return (
            0
            if self._engine.classifying is None
            else self._engine.classifying.tag(request, self._engine.demand(request))
        )

    def never_fits(self, request: int) -> DoesNotFit:
        engine, allocator = self._engine, self._engine.allocator
        return DoesNotFit(
            f"request {request} ({engine.prompt[request]} prompt + {engine.output[request]} output "
            f"tokens) does not fit the empty device's {allocator.slots} token slots, says "
            f"policy {allocator.options.name}"
        )
