"""An engine that keeps part of its requests' KV on other cards, and part of theirs.

A request runs on its home. Blocks of its KV lie there and on lenders, which compute local attention
over theirs (`policies.memory.distributed_attention`). A lender reserves room; the home fills it
with what it computes when its own memory is used up, or copies to it what it holds. Decoded tokens
stay at home. An end or a preemption gives all rooms back; nothing of such a request is found again,
on the device or in a tier, to which requests go whole. One whose KV is on its way to a tier is not
lent. Where a card fails, what it kept for others is lost, and they compute it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from hwmodel.description.description import DescriptionError
from policies.engines.connector import Connector
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.distributed_attention import DistributedAttention
from policies.memory.step import StepModel
from policies.transfers.fabric import Links
from policies.transfers.guests import require_blocks
from policies.transfers.lending_delays import LendingDelays
from policies.transfers.lending_traffic import LendingTraffic, Wire
from policies.transfers.lent_rooms import Borrowers, Home, LendingCard, LentRooms


class Lender(Connector):
    """Of the card of `engine`, and of those that it lends to and borrows from, which all are of one
    model. `card`: its number among them."""

    engine: Engine
    rooms: LentRooms
    visitors: Borrowers

    def __init__(self, engine: Engine, steps: StepModel, links: Links) -> None:
        """Joins the connectors of `engine`. Raises DescriptionError as `require_blocks`, and where
        prefixes lie in one place."""
        self.allocator, blocks = engine.allocator, require_blocks(engine.allocator)
        if not blocks.lies_apart:
            raise DescriptionError(
                "cluster.lending: this policy keeps what requests have in common whole, in one "
                "tree, so that no part of it can lie on another card; expected paged"
            )
        self.block = blocks.block
        self._layout = self.allocator.layout
        groups = self._layout.groups
        self._parts = 1 if groups is None else groups.kept.count(None)
        """Slots of a token that can lie elsewhere: one in each group without a window."""
        self._near = 0 if groups is None else max(groups.near, default=0)
        """The last tokens of a request, which stay at home: those of the longest window."""
        self.home = Home(engine, steps, links, blocks)
        self.loans = self.home.loans
        self._tick_s = 0.0
        self.rooms = LentRooms(self.home)
        self.visitors = self.home.borrowers = Borrowers(self.home, self.rooms)
        self.delays: LendingDelays = LendingDelays(self.home, self.rooms)
        engine.connect(self)

    def join(
        self, card: int, cards: Sequence[LendingCard], work: DistributedAttention, spare: int,
        step_tokens: int | None, first_s: float, wire: Wire,
    ) -> None:  # fmt: skip
        """It is one of these from now on; loans are first planned at `first_s`. wire: where what
        they ask of each other, and copy, is put."""
        home, self.card, self._tick_s = self.home, card, first_s
        home.cards, home.work, home.spare, home.step_tokens = cards, work, spare, step_tokens
        home.traffic = LendingTraffic(home.links.place, wire)

    def succeed(self, other: Lender) -> None:
        """It stands where `other` has failed, and its sums go on."""
        own, before = self.home, other.home
        own.totals, own.slower = before.totals, before.slower
        self.join(
            other.card, before.cards, before.work, before.spare, before.step_tokens, other._tick_s,
            before.traffic.wire,
        )  # fmt: skip

    def keeps_at(self, card: int) -> bool:
        """Whether a card keeps something for requests here."""
        return bool(self.loans.at(card))

    def fails(self, card: int) -> None:
        """What a card kept for requests here is lost: they give all back, and begin again."""
        engine, place = self.engine, self.home.of(card).links.place
        self.home.traffic.lose(place)
        for request in self.loans.at(card):
            if request in engine.running and request not in engine.ending:
                engine.loads.begin_again(request)
            else:
                self.rooms.give_back(request)

    @property
    def due_s(self) -> float:
        """When it can run again, where it is blocked; else inf."""
        return self._tick_s if self.home.blocked else float("inf")

    def clock(self, now_s: float) -> None:
        """Time has passed: what was blocked may be tried again."""
        if now_s > self.home.now_s:
            self.home.blocked = False
        self.home.now_s = now_s

    def plans(self, at_s: float, next_s: float) -> None:
        """Loans are planned now, and then."""
        self._tick_s, self.home.now_s, self.home.blocked = next_s, at_s, False
        for request in [each for each in list(self.engine.waiting)[1:] if each in self.loans]:
            self.rooms.give_back(request)

    @property
    def lacking(self) -> int:
        """Tokens that the first in line lacks, or those that run to grow."""
        engine, free = self.engine, self.allocator.free_slots
        wanted = self.home.spare - free if engine.running.size else 0
        wanted = -(-wanted // self._parts)
        room = len(engine.running) < engine.spec.sequence_cap
        if engine.waiting and not engine.prefilling and room:
            head = engine.waiting[0]
            tokens = engine.total(head) - self.loans.room_of(head)
            wanted = tokens - self._fitting(tokens, free - self.home.spare)
        return max(wanted - self.loans.moving, 0)

    def _fitting(self, tokens: int, slots: int) -> int:
        """How many of so many tokens of a request have room here in so many slots."""
        if self._layout.groups is None:
            return slots
        low, high = 0, max(tokens, 0)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.rooms.needs(middle) <= slots else (low, middle - 1)
        return low

    @property
    def lends(self) -> int:
        """Tokens of others for which there is room beside what stays free."""
        return max(self.allocator.largest_hole - self.home.spare, 0) // self._parts

    @property
    def lendable(self) -> list[tuple[int, int]]:
        """(tokens, request) that others could keep, the longest first: whole blocks of requests
        that decode, but for the last, and what the first in line will have beyond a step, or
        lacks."""
        found = []
        engine, last = self.engine, max(self._near, 1)
        for request in engine.decoding().tolist():
            whole = max(int(self.allocator.stored[request]) - last, 0) // self.block * self.block
            found.append((whole - self.loans.moving_of(request), request))
        if engine.waiting and not engine.prefilling:
            head, alone = engine.waiting[0], self.allocator.reach - self.home.spare
            first = min(engine.budget, alone // self._layout.parts - self.block)
            # whole blocks are lent: all that it lacks, though a step then has less here
            lacks = -(-self.lacking // self.block) * self.block
            total = engine.total(head)
            found.append((max(total - max(first, self._near), min(lacks, total - last)), head))
        able = [
            (tokens, request) for tokens, request in found
            if tokens > 0 and not engine.loads.in_transit(request)
        ]  # fmt: skip
        return sorted(able, reverse=True)

    def borrow(self, request: int, lender: int, tokens: int) -> bool:
        """The local manager there reserves room, and what is at home is copied to it; False if it
        has none."""
        if not self.home.of(lender).borrowers.lend(request, tokens):
            return False
        moving = tokens if request in self.engine.running else 0
        self.loans.extend(request, lender, tokens, moving)
        self.home.totals["loans"] += 1
        self.home.totals["lent_tokens"] += tokens
        return True

    def rounds(self, step: Step, limit: int) -> int:
        # the controller decides something every few steps
        return 1 if self.loans.moving else min(limit, 16)

    def begins(self) -> None:
        self.rooms.begins()
