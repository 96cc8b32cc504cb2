"""A connector of requests that an engine takes over from others while they run, and hands over.

A request has its memory on the card that takes it from the first copy on, and on the one that gives
it until the last copy is there; where it runs its KV is whole. Copies that come give way: where
nothing else could run, their memory is taken back. What the host keeps of a request that goes stays
there: it is a cache of texts, which others may ask for, and the KV itself goes from card to card.
"""

from __future__ import annotations

from collections import Counter, deque

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator
from policies.allocators.capabilities import CopiesKv, Migration, MovesBlocks
from policies.engines.connector import Connector
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.step import StepModel
from policies.requests.requests import IntArray
from policies.transfers.copy_waits import CopyWaits
from policies.transfers.fabric import Links
from policies.transfers.landing import Landing

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
    """Requests of `engine` that run there wholly, come, or are leaving. `landing`: those with
    memory here that do not run."""

    engine: Engine

    def __init__(self, engine: Engine, steps: StepModel, links: Links) -> None:
        """Joins the connectors of `engine`. steps: times of its steps. links: of its replica."""
        self.allocator = engine.allocator
        self.block = self.allocator.transfer_block
        """Tokens in which KV moves."""
        self.landing = self.visitors = Landing(engine, links)
        self.delays: CopyWaits = CopyWaits(steps, links)
        self.lost_memory: Counter[int] = Counter()
        """How often requests were preempted."""
        self._copying = self.allocator.able(CopiesKv)
        engine.connect(self)

    # hooks

    @property
    def due_s(self) -> float:
        return self.landing.due_s

    def clock(self, now_s: float) -> None:
        self.landing.land(now_s)

    def rounds(self, step: Step, limit: int) -> int:
        return self.delays.rounds(limit)

    def preempted(self, request: int) -> None:
        self.lost_memory[request] += 1

    # who is here, for controllers

    @property
    def running(self) -> IntArray:
        """Those of the engine that have not ended, int64 (n,)."""
        running = self.engine.running
        return running[self.engine.left[running] > 0] if self.engine.ending else running

    def whole(self) -> IntArray:
        """The running requests whose prompts are computed."""
        return self.engine.decoding()

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
        many = len(self.running) + len(self.landing.requests)
        return many < self.engine.spec.sequence_cap

    def stop(self, request: int) -> None:
        """A running request stops; its memory stays until it is `Landing.over`."""
        self.engine.stop(request)
        self.landing.stopped.add(request)

    def queue(self, request: int) -> None:
        """A request begins again here, in order of arrival."""
        self.engine.waiting = deque(sorted((*self.engine.waiting, request)))

    def clear(self) -> tuple[list[tuple[int, int, float, IntArray]], list[int]]:
        """Give all requests and memory up: (request, tokens, when it may run at the earliest,
        blocks) of those whose prompts are computed, and those that have to begin again."""
        self.engine.retire()
        due = self.landing.coming_at
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
        for request in (*running, *self.landing.requests):
            self.engine.give_back(request)
        self.landing.clear()
        self.engine.loads.lose()
        self.copied()
        return kept, line + self.engine.leave_line()

    def copied(self) -> list[Migration]:
        """Copies within the memory that no step has made."""
        return [] if self._copying is None else self._copying.copies()
