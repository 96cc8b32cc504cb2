"""Room that requests of a card have on others, and those of others there (`lender.py`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from policies.allocators.allocator import Demand
from policies.allocators.capabilities import MovesBlocks
from policies.engines.engine import Engine
from policies.engines.memory_beside import Rooms, Visitors
from policies.engines.scheduled_step import Step
from policies.memory.distributed_attention import DistributedAttention, Share
from policies.memory.step import StepModel
from policies.requests.requests import IntArray
from policies.transfers.fabric import Links
from policies.transfers.lending_traffic import LendingTraffic
from policies.transfers.loans import Loan, Loans


class LendingCard(Protocol):
    """A card that lends, and borrows."""

    home: Home


class Home:
    """What a lender and its parts know of its card. `spare`: tokens that plans leave free on each;
    `work`: attention over what lies elsewhere; `step_tokens`: as the options say."""

    cards: Sequence[LendingCard]
    """All, by number, of which this is one; who fails is replaced."""
    work: DistributedAttention
    spare: int
    step_tokens: int | None
    traffic: LendingTraffic
    borrowers: Borrowers

    def __init__(self, engine: Engine, steps: StepModel, links: Links, blocks: MovesBlocks) -> None:
        self.engine, self.steps, self.links, self.blocks = engine, steps, links, blocks
        self.loans = Loans()
        """Of requests at home here."""
        self.now_s = 0.0
        self.blocked = False
        """Whether it can run nothing until something is decided elsewhere."""
        self.owed_s = 0.0
        """What attention for others has taken of this card and its own steps have not waited."""
        self.landing = 0
        """Tokens copied to others of which a block is not whole yet."""
        self.slower: list[float] = []
        """Shares by which steps beside copies take longer."""
        self.totals: dict[str, float] = defaultdict(float)
        """Bytes, seconds and tokens so far."""

    def of(self, card: int) -> Home:
        """That of another card."""
        return self.cards[card].home


class LentRooms(Rooms):
    """Of the requests at home at a lender. `fresh`: tokens that the next step computes and does not
    keep, `sent`: these as (request, loan, tokens). `shares`: what it asks of each card, and
    `asking` of its tokens do."""

    def __init__(self, home: Home) -> None:
        self._home, self._engine, self.loans = home, home.engine, home.loans
        self._allocator, self._blocks = home.engine.allocator, home.blocks
        self._layout = self._allocator.layout
        self.begins()

    def begins(self) -> None:
        """A step is about to be scheduled."""
        self.shares: dict[int, Share] = {}
        self.fresh = self.asking = 0
        self.sent: list[tuple[int, Loan, int]] = []

    def away(self, request: int) -> int:
        return self.loans.filled_of(request)

    def apart(self, request: int) -> bool:
        return request in self.loans

    def room(self, request: int) -> int:
        """Tokens of a request for which there is room on other cards."""
        return self.loans.room_of(request)

    def admitted(self, request: int) -> None:
        self.give_back(request)

    def admit(self, request: int, demand: Demand, total: int, cached: int, tokens: int) -> bool:
        rooms, free = self.room(request), self._allocator.free_slots
        if not rooms or self.needs(total - rooms) > free:
            return False
        if self._allocator.reserve(request, demand, cached + tokens):
            return True
        away = self._deal(request, tokens, cached)
        if not self._allocator.reserve(request, demand, cached + tokens - sum(away)):
            return False
        self._send(request, away)
        return True

    def grow(self, request: int, tokens: int) -> bool | None:
        if request not in self.loans:
            return None
        away = self._deal(request, tokens)
        if not self._allocator.grow(request, tokens - sum(away)):
            return False
        self._send(request, away)
        return True

    def _deal(self, request: int, tokens: int, found: int = 0) -> list[int]:
        """How many of the next tokens of a request each of its lenders keeps: those for which there
        is no room at home. found: tokens before them that may lie in what is free."""
        layout = self._layout
        room = self._allocator.free_slots - self._home.spare - int(layout.slots_of(found))
        return self.loans.deal(request, tokens - max(min(tokens, room // layout.parts), 0))

    def _send(self, request: int, away: list[int]) -> None:
        """So many tokens of a request are computed, and kept by each of its lenders."""
        for loan, sent in zip(self.loans[request], away, strict=True):
            loan.filled += sent
            self.sent.append((request, loan, sent))
        if sum(away):
            self._blocks.drop_first(request, 0)
        self.fresh += sum(away)

    def leave(self, request: int) -> int | None:
        return self.give_back(request) if request in self.loans else None

    def give_back(self, request: int) -> int:
        """All that others keep for a request is gone; tokens of the rooms."""
        keepers = [self._home.of(loan.lender).borrowers for loan in self.loans.pop(request, ())]
        # one that has failed has lost the room already
        return sum(each.give_back(request) for each in keepers if request in each.lent)

    def needs(self, tokens: int) -> int:
        """Slots that so many tokens of a request take here; of layers with a window as many as
        their steps have at a time."""
        if self._layout.groups is None:
            return tokens
        alone = np.array([max(tokens, 1)]), np.ones(1, np.int64)
        return int(self._allocator.needs(*alone)[0])

    def scheduled(self, step: Step) -> None:
        running = self._engine.running.size
        self._home.blocked = step.empty and not step.preempted and not running
        if not self.loans:
            return
        fresh = {id(loan): sent for _, loan, sent in self.sent}  # nothing asks for these yet
        for chunk in step.chunks:
            for share, filled in self._ask(chunk.request, chunk.tokens, fresh):
                share.chunked += chunk.tokens
                share.stored += filled
                share.pairs += chunk.tokens * filled
        for request, rows in zip(
            step.decode.tolist(), self._engine.growth.rows_of(step).tolist(), strict=True
        ):
            for share, filled in self._ask(request, rows, fresh):
                share.decoding += rows
                share.context += filled
                share.pairs += (rows - 1) * filled

    def _ask(
        self, request: int, tokens: int, fresh: dict[int, int]
    ) -> list[tuple[Share, int]]:  # fmt: skip
        """What cards are asked that hold KV of a request, by so many tokens of it, and how much of
        it they hold, but for what is on its way."""
        found = [
            (loan, loan.filled - fresh.get(id(loan), 0)) for loan in self.loans.get(request, ())
        ]
        found = [each for each in found if each[1]]
        self.asking += tokens if found else 0
        shares = self.shares
        return [(shares.setdefault(loan.lender, Share()), filled) for loan, filled in found]


class Borrowers(Visitors):
    """Requests of other cards with room at a lender: `lent`."""

    def __init__(self, home: Home, rooms: LentRooms) -> None:
        self._home, self._rooms, self._engine = home, rooms, home.engine
        self._allocator, self._blocks = home.engine.allocator, home.blocks
        self.lent: set[int] = set()

    def lend(self, request: int, tokens: int) -> bool:
        """Room for so many tokens of another card's request; False if there is none."""
        self._engine.changes += 1
        if request in self.lent:
            return self._allocator.grow(request, tokens)
        demand = Demand(tokens, 0, self._engine.demand(request).prediction)
        if not self._blocks.keep(request, demand, tokens):
            return False
        self.lent.add(request)
        return True

    def give_back(self, request: int) -> int:
        """Room of another's request is free again; its tokens."""
        self.lent.remove(request)
        self._engine.changes += 1
        return self._blocks.give_back(request)

    def drained(self) -> list[int]:
        """See `Visitors.drained`: all rooms are given back, and nothing moves any more."""
        home = self._home
        home.traffic.lose()
        for request in list(home.loans):
            self._rooms.give_back(request)
        for request in sorted(self.lent):
            self.give_back(request)
        home.blocked, home.owed_s, home.landing = False, 0.0, 0
        return []

    def busy(self, own: bool) -> bool:
        return own and not self._home.blocked

    @property
    def holding(self) -> bool:
        return True  # others may lend, or give back what they were lent

    @property
    def holders(self) -> IntArray:
        return np.array([*self.lent], np.int64)
