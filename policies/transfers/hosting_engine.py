"""v1 on a card that takes requests over from others while they run, and hands them over.

A request has its memory on the card that takes it from the first copy on, and on the one that gives
it until the last copy is there; where it runs its KV is whole. Copies that come give way: where
nothing else could run, their memory is taken back.
"""

from __future__ import annotations

import heapq
from collections import Counter

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.allocators.block_allocator import BlockAllocator
from policies.allocators.capabilities import Caches
from policies.allocators.paged import PagedAllocator
from policies.engines.engine import Offered
from policies.engines.engine_v1 import EngineV1, EngineV1Spec
from policies.engines.scheduled_step import Step
from policies.requests.requests import IntArray

NONE: IntArray = np.zeros(0, np.int64)
_KEYS = "cluster.dropping, cluster.migration, cluster.lending"


class HostingEngine(EngineV1):
    """Requests that run here wholly, come, or are leaving."""

    allocator: PagedAllocator

    def __init__(self, spec: EngineV1Spec, allocator: Allocator, offered: Offered) -> None:
        """Raises DescriptionError for what is not modelled."""
        super().__init__(spec, allocator, offered)
        _require_plain(_KEYS, self)
        _require_blocks(_KEYS, allocator)
        if not isinstance(allocator, PagedAllocator):
            raise DescriptionError(f"{_KEYS}: expected policy paged, or one that is made of it")
        self.block = allocator.block
        self.coming: set[int] = set()
        """Requests with memory here that run elsewhere."""
        self.stopped: set[int] = set()
        """Requests with memory here that run nowhere: until a time in `_due`."""
        self.lost: Counter[int] = Counter()
        """How often requests were preempted."""
        self._copied = (0.0, 0.0)  # bytes a second, until when
        self.blocked = False
        """Whether it can run nothing until something is decided elsewhere."""
        self.slower: list[float] = []
        """Shares by which steps beside copies take longer."""
        self._due: list[tuple[float, int, bool]] = []  # a heap: (when, request, whether it runs)

    @property
    def busy(self) -> bool:
        return super().busy or bool(self._due)

    @property
    def holding(self) -> bool:
        return bool(self.coming or self.stopped)

    @property
    def holders(self) -> IntArray:
        return np.array([*self.coming, *self.stopped], np.int64)

    @property
    def due_s(self) -> float:
        """When a copy that a stopped request waits for is there; inf if none does."""
        return self._due[0][0] if self._due else float("inf")

    @property
    def freeness(self) -> float:
        """Llumnix's: blocks that are free, less those of the first in line, over the requests that
        run, with it; inf where there are none."""
        free, many = self.allocator.free_slots // self.block, len(self.running) + self.waits
        if self.waiting:
            free -= -(-self.total(self.waiting[0]) // self.block)
        return free / many if many else float("inf")

    @property
    def demand_tokens(self) -> int:
        """Tokens that those in line have to store."""
        return sum(self.total(request) for request in self.waiting)

    def room_for_one(self) -> bool:
        """Whether the sequence cap has room for one more."""
        return len(self.running) + len(self.coming) + len(self.stopped) < self._cap

    def copies(self, bytes_s: float, until_s: float) -> None:
        """So much is read and written in its memory until then by copies to and from others."""
        self._copied = (bytes_s, max(until_s, self._copied[1]))

    def copied_bytes_s(self, now_s: float) -> float:
        """What `copies` says of now."""
        return self._copied[0] if now_s < self._copied[1] else 0.0

    def whole(self) -> IntArray:
        """The running requests whose prompts are computed."""
        return self._decoding()

    def host(self, request: int, tokens: int, left: int, blocks: IntArray = NONE) -> bool:
        """Memory for the first `tokens` of a request, of which `left` are to be made; False if
        there is no room. Also for more of one that comes already. blocks: they lie there."""
        if request in self.coming:
            return self.allocator.grow(request, tokens - int(self.allocator.stored[request]))
        self.left[request] = left
        demand = self.demand(request)
        mine = len(blocks) and self.allocator.adopt(request, demand, blocks, tokens)
        if not mine and not self.allocator.reserve(request, demand, tokens):
            return False
        self.coming.add(request)
        self.changes += 1
        return True

    def run_at(self, request: int, at_s: float) -> None:
        """All of a request that comes is here then, and it runs."""
        self.coming.remove(request)
        self.stopped.add(request)
        heapq.heappush(self._due, (at_s, request, True))

    def stop(self, request: int, until_s: float) -> None:
        """A running request stops, and gives its memory back then."""
        self.running = self.running[self.running != request]
        self.stopped.add(request)
        self.changes += 1
        heapq.heappush(self._due, (until_s, request, False))

    def cancel(self, request: int) -> None:
        """A request that comes does not."""
        if request in self.coming:
            self.coming.remove(request)
            self._release(request)
            self.changes += 1

    def land(self, now_s: float) -> None:
        """What was due by now runs here, or is gone."""
        while self._due and self._due[0][0] <= now_s:
            _, request, runs = heapq.heappop(self._due)
            self.stopped.remove(request)
            self.changes += 1
            if runs:  # one in its prefill stays the last
                at = len(self.running) - self._partial
                self.running = np.insert(self.running, at, request)
            else:
                self._release(request)

    def clear(self) -> tuple[list[tuple[int, int, float, IntArray]], list[int]]:
        """Give all requests and memory up: (request, tokens, when it may run at the earliest,
        blocks) of those whose prompts are computed, and those that have to begin again."""
        due = {request: at_s for at_s, request, runs in self._due if runs}
        running, done = self.running.tolist(), len(self.whole())
        whole = [*running[:done], *due]
        stored, units = self.allocator.stored, self.allocator.units
        kept = [
            (r, int(stored[r]), due.get(r, 0.0), units(r).start // self.block) for r in whole
        ]  # fmt: skip
        line = [*running[done:], *self.waiting]
        for request in (*running, *self.stopped, *self.coming):
            self._release(request)
        self.allocator.forget()
        self.allocator.copies()
        self.running, self._partial = np.zeros(0, np.int64), False
        for each in (self.waiting, self.stopped, self.coming, self._due):
            each.clear()
        self.changes += 1
        return kept, line

    def schedule(self) -> Step:
        step = super().schedule()
        if step.empty and self.coming and self.waiting:
            for request in list(self.coming):
                self.cancel(request)
            step = super().schedule()
        if not step.empty and (copied := self.allocator.copies()):
            self.changes += 1
            step = step._replace(copies=(*step.copies, *copied))
        return step

    def _preempt(self, request: int) -> None:
        self.lost[request] += 1
        super()._preempt(request)


def _require_plain(key: str, engine: EngineV1, late: bool = False) -> None:
    """Raises DescriptionError for options of v1 that are not modelled with KV in motion. late:
    asynchronous scheduling is."""
    spec = engine.spec
    plain = spec.batching == "any" and spec.packing == "arrival" and not engine.in_turn
    if (spec.async_scheduling and not late) or not plain:
        needs = "neither" if late else "engine.async_scheduling: false, and neither"
        raise DescriptionError(
            f"{key}: needs {needs} batching, packing, long_prefill_token_threshold nor "
            "prefill_schedule_interval"
        )
    if engine.several:
        raise DescriptionError(
            f"{key}: several samples in a request are not modelled; engine.like makes "
            "a request of each"
        )


def _require_blocks(key: str, allocator: Allocator) -> None:
    """Raises DescriptionError for a policy without blocks that are found again, and for KV that is
    more than the numbers of heads in blocks of tokens."""
    layout, policy = allocator.layout, allocator.options.name
    if layout.groups is not None or layout.apart is not None or layout.sparse is not None:
        raise DescriptionError(f"{key}: the model has windows, scales apart or an index of tokens")
    if not isinstance(allocator, BlockAllocator) or not isinstance(allocator, Caches):
        raise DescriptionError(
            f"{key}: policy {policy} has no blocks that are found again; expected paged"
        )
