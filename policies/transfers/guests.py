"""A connector of requests that an engine takes over from others while they run, and hands over.

A request has its memory on the card that takes it from the first copy on, and on the one that gives
it until the last copy is there; where it runs its KV is whole. Copies that come give way: where
nothing else could run, their memory is taken back. What the host keeps of a request that goes stays
there: it is a cache of texts, which others may ask for, and the KV itself goes from card to card.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from operator import itemgetter

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import CopiesKv, Migration, MovesBlocks
from policies.engines.connector import NONE, Connector
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray, IntArray
from policies.transfers.fabric import Links
from policies.transfers.kv_link import Transfer

_KEYS = "cluster.dropping, cluster.lending"


def require_blocks(allocator: Allocator) -> MovesBlocks:
    """The allocator, whose blocks can change hands. Raises DescriptionError for a policy without
    such blocks."""
    if (able := allocator.able(MovesBlocks)) is None:
        raise DescriptionError(
            f"{_KEYS}: this policy keeps a request as one whole, of which no part can be given up, "
            "taken over or lie elsewhere; expected paged, or one that is made of it"
        )
    return able


class Guests(Connector):
    """Requests of `engine` that run there wholly, come, or are leaving."""

    engine: Engine

    def __init__(self, engine: Engine, steps: StepModel, links: Links) -> None:
        """Joins the connectors of `engine`. steps: times of its steps. links: of its replica."""
        self._steps, self._links = steps, links
        self.allocator = engine.allocator
        self.block = self.allocator.transfer_block
        """Tokens in which KV moves."""
        self.coming: set[int] = set()
        """Requests with memory here that run elsewhere."""
        self.stopped: set[int] = set()
        """Requests with memory here that run nowhere, until a transfer lands."""
        self.awaited: dict[int, Transfer] = {}
        """Of these, those that are to run here, and what brings the last of them."""
        self.lost_memory: Counter[int] = Counter()
        """How often requests were preempted."""
        self.slower: list[float] = []
        """Shares by which steps beside copies take longer."""
        allocator = self.allocator
        self._copying = allocator.able(CopiesKv)
        self._blocks = allocator.able(MovesBlocks)
        self._landed: list[tuple[float, int, bool]] = []  # a heap: (when, whose, whether it runs)
        engine.connect(self)

    @property
    def running(self) -> IntArray:
        """Those of the engine that have not ended, int64 (n,)."""
        running = self.engine.running
        return running[self.left[running] > 0] if self.engine.ending else running

    @property
    def left(self) -> IntArray:
        """Output tokens that each request has still to make, int64 (n,), as the engine has it."""
        return self.engine.left

    def busy(self, own: bool) -> bool:
        return own or bool(self.stopped)

    @property
    def holders(self) -> IntArray:
        return np.array([*self.coming, *self.stopped], np.int64)

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

    def freeness(self, taken: int) -> float:
        """Llumnix's: blocks that are free, less those of the first in line, over the requests that
        run, with it; inf where there are none. taken: slots beyond those that are counted."""
        free, waiting = (self.allocator.free_slots - taken) // self.block, self.engine.waiting
        many = len(self.running) + self.engine.waits
        if waiting:
            free -= -(-self.engine.line.wanted(waiting[0]) // self.block)
        return free / many if many else float("inf")

    @property
    def demand_tokens(self) -> int:
        """Tokens that those in line have to store."""
        return sum(self.engine.total(request) for request in self.engine.waiting)

    def room_for_one(self) -> bool:
        """Whether the sequence cap has room for one more."""
        many = len(self.running) + len(self.coming) + len(self.stopped)
        return many < self.engine.spec.sequence_cap

    def rounds(self, step: Step, limit: int) -> int:
        return min(limit, 16) if self._links.copying() else limit  # they end beside the steps

    def clock(self, now_s: float) -> None:
        self.land(now_s)

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray | None:  # fmt: skip
        if not (taken := self._links.copying()):
            return None
        waits_s = times.contended(taken, self._steps.bandwidth * efficiency.attention)
        self.slower.append(float(waits_s[0] / times.total_s[0]))
        return waits_s

    def whole(self) -> IntArray:
        """The running requests whose prompts are computed."""
        return self.engine.decoding()

    def host(self, request: int, tokens: int, blocks: IntArray = NONE) -> bool:
        """Memory for the first `tokens` of a request; False if there is no room. Also for more of
        one that comes already. blocks: they lie there."""
        allocator = self.allocator
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

    def stop(self, request: int) -> None:
        """A running request stops; its memory stays until `over`."""
        self.engine.stop(request)
        self.stopped.add(request)

    def over(self, request: int, at_s: float, runs: bool) -> None:
        """What a stopped request waits for has landed, or will not: it runs here from its next step
        on, or gives its memory back."""
        self.coming.discard(request)
        self.stopped.add(request)
        self.awaited.pop(request, None)
        heapq.heappush(self._landed, (at_s, request, runs))

    def cancel(self, request: int) -> None:
        """A request that comes does not."""
        if request in self.coming:
            self.coming.remove(request)
            self.engine.give_back(request)

    def drained(self) -> list[int]:
        """See `Connector.drained`: those that would have run here."""
        begin_again = list(self.coming_at)
        for request in sorted((*self.stopped, *self.coming)):
            self.engine.give_back(request)
        for each in (self.stopped, self.coming, self.awaited, self._landed):
            each.clear()
        return begin_again

    def queue(self, request: int) -> None:
        """A request begins again here, in order of arrival."""
        self.engine.waiting = deque(sorted((*self.engine.waiting, request)))

    def land(self, now_s: float) -> None:
        """What has landed by now runs here, or is gone."""
        while self._landed and self._landed[0][0] <= now_s:
            _, request, runs = heapq.heappop(self._landed)
            self.stopped.remove(request)
            if runs:
                self.allocator.unpin(request)
                self.engine.join(request)
            else:
                self.engine.give_back(request)

    def clear(self) -> tuple[list[tuple[int, int, float, IntArray]], list[int]]:
        """Give all requests and memory up: (request, tokens, when it may run at the earliest,
        blocks) of those whose prompts are computed, and those that have to begin again."""
        self.engine.retire()
        due = self.coming_at
        running, done = self.running.tolist(), self.whole().tolist()
        stored, units = self.allocator.stored, self.allocator.units
        kept = [
            (r, int(stored[r]), due.get(r, 0.0), units(r).start // self.block)
            for r in (*done, *due)
        ]  # fmt: skip
        begun = set(done)
        line = [r for r in running if r not in begun]
        for request in running:
            self.engine.stop(request)
        for request in (*running, *self.stopped, *self.coming):
            self.engine.give_back(request)
        for each in (self.stopped, self.coming, self.awaited, self._landed):
            each.clear()
        self.engine.loads.lose()
        self.copied()
        return kept, line + self.engine.leave_line()

    def copied(self) -> list[Migration]:
        """Copies within the memory that no step has made."""
        return [] if self._copying is None else self._copying.copies()

    def gives_way(self) -> bool:
        if not (self.coming and self.engine.waiting):
            return False
        for request in list(self.coming):
            self.cancel(request)
        return True

    def preempted(self, request: int) -> None:
        self.lost_memory[request] += 1
