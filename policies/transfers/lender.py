"""An engine that keeps part of its requests' KV on other cards, and part of theirs.

A request runs on its home. Blocks of its KV lie there and on lenders, which compute local attention
over theirs (`policies.memory.distributed_attention`). A lender reserves room; the home fills it
with what it computes when its own memory is used up, or copies to it what it holds. Decoded tokens
stay at home. An end or a preemption gives all rooms back; nothing of such a request is found again,
on the device or in a tier, to which requests go whole. One whose KV is on its way to a tier is not
lent. Where a card fails, what it kept for others is lost, and they compute it again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Demand
from policies.engines.connector import Connector
from policies.engines.engine import Engine
from policies.engines.scheduled_step import Step
from policies.memory.distributed_attention import DistributedAttention, Share
from policies.memory.step import StepModel
from policies.memory.step_times import Efficiency, StepTimes
from policies.requests.requests import FloatArray, IntArray
from policies.transfers.fabric import Links
from policies.transfers.guests import require_blocks
from policies.transfers.kv_link import Transfer
from policies.transfers.lending_traffic import LendingTraffic, Wire
from policies.transfers.loans import Loan, Loans


class Lender(Connector):
    """Loans of the requests of `engine`. `card`: its number among `cards`, which all are of one
    model. `spare`: tokens that plans leave free on each."""

    engine: Engine

    def __init__(self, engine: Engine, steps: StepModel, links: Links) -> None:
        """Joins the connectors of `engine`. Raises DescriptionError as `require_blocks`, and where
        prefixes lie in one place."""
        self._steps, self._links = steps, links
        self.allocator, self._blocks = engine.allocator, require_blocks(engine.allocator)
        if not self._blocks.lies_apart:
            raise DescriptionError(
                "cluster.lending: this policy keeps what requests have in common whole, in one "
                "tree, so that no part of it can lie on another card; expected paged"
            )
        self.block = self._blocks.block
        self._layout = self.allocator.layout
        groups = self._layout.groups
        self._parts = 1 if groups is None else groups.kept.count(None)
        """Slots of a token that can lie elsewhere: one in each group without a window."""
        self._near = 0 if groups is None else max(groups.near, default=0)
        """The last tokens of a request, which stay at home: those of the longest window."""
        self.loans = Loans()
        """Of requests at home here."""
        self.lent: set[int] = set()
        """Requests of others with room here."""
        self.blocked = False
        """Whether it can run nothing until something is decided elsewhere."""
        self.slower: list[float] = []
        """Shares by which steps beside copies take longer."""
        self._tick_s = self._now_s = 0.0
        self.owed_s = 0.0
        """What attention for others has taken of this card and its own steps have not waited."""
        self._shares: dict[int, Share] = {}
        self._fresh = self._asking = self._leaving = self._landing = 0
        self._sent: list[tuple[int, Loan, int]] = []
        """(request, loan, tokens) of those that a step computes and does not keep."""
        self.totals: dict[str, float] = defaultdict(float)
        """Bytes, seconds and tokens so far."""
        engine.connect(self)

    def join(
        self, card: int, cards: Sequence[Lender], work: DistributedAttention, spare: int,
        step_tokens: int | None, first_s: float, wire: Wire,
    ) -> None:  # fmt: skip
        """It is one of these from now on; loans are first planned at `first_s`. wire: where what
        they ask of each other, and copy, is put."""
        self._tick_s, self._traffic = first_s, LendingTraffic(self._links.place, wire)
        self.card, self._cards, self._work, self.spare = card, cards, work, spare
        self._step_tokens = step_tokens

    def succeed(self, other: Lender) -> None:
        """It stands where `other` has failed, and its sums go on."""
        self.totals, self.slower = other.totals, other.slower
        self.join(
            other.card, other._cards, other._work, other.spare, other._step_tokens, other._tick_s,
            other._traffic.wire,
        )  # fmt: skip

    def drained(self) -> list[int]:
        """See `Connector.drained`: all rooms are given back, and nothing moves any more."""
        self._traffic.lose()
        for request in list(self.loans):
            self._give_rooms_back(request)
        for request in sorted(self.lent):
            self.give_back(request)
        self.blocked, self.owed_s, self._landing = False, 0.0, 0
        return []

    def keeps_at(self, card: int) -> bool:
        """Whether a card keeps something for requests here."""
        return bool(self.loans.at(card))

    def fails(self, card: int) -> None:
        """What a card kept for requests here is lost: they give all back, and begin again."""
        engine, place = self.engine, self._cards[card]._links.place
        self._traffic.lose(place)
        for request in self.loans.at(card):
            if request in engine.running and request not in engine.ending:
                engine.loads.begin_again(request)
            else:
                self._give_rooms_back(request)

    def busy(self, own: bool) -> bool:
        return own and not self.blocked

    @property
    def holding(self) -> bool:
        return True  # others may lend, or give back what they were lent

    @property
    def holders(self) -> IntArray:
        return np.array([*self.lent], np.int64)

    @property
    def due_s(self) -> float:
        """When it can run again, where it is blocked; else inf."""
        return self._tick_s if self.blocked else float("inf")

    def clock(self, now_s: float) -> None:
        """Time has passed: what was blocked may be tried again."""
        if now_s > self._now_s:
            self.blocked = False
        self._now_s = now_s

    def plans(self, at_s: float, next_s: float) -> None:
        """Loans are planned now, and then."""
        self._tick_s, self._now_s, self.blocked = next_s, at_s, False
        for request in [each for each in list(self.engine.waiting)[1:] if each in self.loans]:
            self._give_rooms_back(request)

    @property
    def lacking(self) -> int:
        """Tokens that the first in line lacks, or those that run to grow."""
        engine, free = self.engine, self.allocator.free_slots
        wanted = self.spare - free if engine.running.size else 0
        wanted = -(-wanted // self._parts)
        room = len(engine.running) < engine.spec.sequence_cap
        if engine.waiting and not engine.prefilling and room:
            head = engine.waiting[0]
            tokens = engine.total(head) - self.room(head)
            wanted = tokens - self._fitting(tokens, free - self.spare)
        return max(wanted - self.loans.moving, 0)

    def _fitting(self, tokens: int, slots: int) -> int:
        """How many of so many tokens of a request have room here in so many slots."""
        if self._layout.groups is None:
            return slots
        low, high = 0, max(tokens, 0)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._needs(middle) <= slots else (low, middle - 1)
        return low

    def _needs(self, tokens: int) -> int:
        """Slots that so many tokens of a request take here; of layers with a window as many as
        their steps have at a time."""
        if self._layout.groups is None:
            return tokens
        alone = np.array([max(tokens, 1)]), np.ones(1, np.int64)
        return int(self.allocator.needs(*alone)[0])

    @property
    def lends(self) -> int:
        """Tokens of others for which there is room beside what stays free."""
        return max(self.allocator.largest_hole - self.spare, 0) // self._parts

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
            head, alone = engine.waiting[0], self.allocator.reach - self.spare
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
        if not self._cards[lender].lend(request, tokens):
            return False
        moving = tokens if request in self.engine.running else 0
        self.loans.extend(request, lender, tokens, moving)
        self.totals["loans"] += 1
        self.totals["lent_tokens"] += tokens
        return True

    def lend(self, request: int, tokens: int) -> bool:
        """Room for so many tokens of another card's request; False if there is none."""
        self.engine.changes += 1
        if request in self.lent:
            return self.allocator.grow(request, tokens)
        demand = Demand(tokens, 0, self.engine.demand(request).prediction)
        if not self._blocks.keep(request, demand, tokens):
            return False
        self.lent.add(request)
        return True

    def give_back(self, request: int) -> int:
        """Room of another's request is free again; its tokens."""
        self.lent.remove(request)
        self.engine.changes += 1
        return self._blocks.give_back(request)

    def rounds(self, step: Step, limit: int) -> int:
        # the controller decides something every few steps
        return 1 if self.loans.moving else min(limit, 16)

    def begins(self) -> None:
        self._shares, self._fresh, self._asking, self._sent = {}, 0, 0, []

    def scheduled(self, step: Step) -> Step:
        running = self.engine.running.size
        self.blocked = step.empty and not step.preempted and not running
        if not self.loans:
            return step
        fresh = {id(loan): sent for _, loan, sent in self._sent}  # nothing asks for these yet
        for chunk in step.chunks:
            for share, filled in self._ask(chunk.request, chunk.tokens, fresh):
                share.chunked += chunk.tokens
                share.stored += filled
                share.pairs += chunk.tokens * filled
        for request, rows in zip(
            step.decode.tolist(), self.engine.growth.rows_of(step).tolist(), strict=True
        ):
            for share, filled in self._ask(request, rows, fresh):
                share.decoding += rows
                share.context += filled
                share.pairs += (rows - 1) * filled
        return step

    def _ask(
        self, request: int, tokens: int, fresh: dict[int, int]
    ) -> list[tuple[Share, int]]:  # fmt: skip
        """What cards are asked that hold KV of a request, by so many tokens of it, and how much of
        it they hold, but for what is on its way."""
        found = [
            (loan, loan.filled - fresh.get(id(loan), 0)) for loan in self.loans.get(request, ())
        ]
        found = [each for each in found if each[1]]
        self._asking += tokens if found else 0
        shares = self._shares
        return [(shares.setdefault(loan.lender, Share()), filled) for loan, filled in found]

    def stalls(
        self, step: Step, times: StepTimes, efficiency: Efficiency, cost: float
    ) -> FloatArray:  # fmt: skip
        """Seconds that each of the steps last scheduled waits: for lenders, for the link, and for
        attention that this card computes for others. Float64 (rounds,)."""
        steps, chunks = self._steps, step.chunks
        busy = [self._cards[lender].engine.running.size > 0 for lender in self._shares]
        asked = self._work.asks(list(self._shares.values()), busy, self._asking, steps, efficiency)
        lenders = [self._cards[each]._links.place for each in self._shares]
        self._traffic.lose()  # of steps that were never done
        late_s = 0.0
        if asked.link_s:
            late_s = self._traffic.late_s(self._traffic.question(lenders, asked, self._now_s))
        link_s = late_s + asked.link_s
        link_s += self._traffic.late_s(self._copy(0, self._now_s + link_s))
        pairs = sum(c.tokens * c.start + c.tokens * (c.tokens + 1) // 2 for c in chunks)
        stored = sum(chunk.start for chunk in chunks)
        chunks_s = self._work.attention_s(0, pairs, stored, steps, efficiency)
        local_s = times.attention_s + chunks_s
        waits: FloatArray = np.maximum(asked.path_s + late_s - local_s, 0.0) + asked.merge_s
        step_s = float(times.total_s[0] + waits[0])
        self._leaving, copied_s = self._copies(step_s, link_s)
        if self._leaving:
            longer = (link_s + copied_s) / step_s
            self.slower.append(max(longer - 1, 0.0))
        waits = np.maximum(waits, link_s + copied_s - times.total_s)
        self._written_s = self._work.written_s(steps, efficiency)
        waits = waits + (self._fresh + self._leaving) * self._written_s
        self._asked, self._pays_s = asked, self.owed_s / len(waits)
        waits = waits + self._pays_s
        steps_s = times.total_s + waits
        begins_s = self._now_s + np.cumsum(steps_s) - steps_s
        sent = []
        if asked.link_s:
            sent = [self._traffic.question(lenders, asked, at_s) for at_s in begins_s.tolist()]
        if tokens := self._fresh + self._leaving:
            sent.append(self._copy(tokens, self._now_s + late_s + asked.link_s))
        self._traffic.send(sent, len(steps_s), self._now_s)
        return waits

    def _copy(self, tokens: int, at_s: float) -> Transfer:
        """KV of so many tokens on its way to lenders."""
        loans = [loan for _, loan, sent in self._sent if sent]
        loans += [each for many in self.loans.values() for each in many if each.moving]
        keepers = dict.fromkeys(self._cards[each.lender]._links.place for each in loans)
        return Transfer(
            source=(self._links.place,), target=tuple(keepers), way="lending", felt=False,
            bytes=tokens * self._work.kv_token_bytes, alone_s=self._work.copy_s(tokens), put_s=at_s,
        )  # fmt: skip

    def _copies(self, step_s: float, link_s: float) -> tuple[int, float]:
        """(tokens copied beside a step, seconds of the link for them and for those computed): as
        many as it has time for, or as the options say."""
        fresh_s = self._work.copy_s(self._fresh)
        pending = self.loans.moving - self._landing
        if not pending:
            return 0, fresh_s
        most = self._step_tokens
        if most is None:
            most = int(max(step_s - link_s - fresh_s, 0.0) / self._work.token_s) or 1
        copied = min(most, pending)
        return copied, self._work.copy_s(copied + self._fresh)

    def passed(self, end_s: float, times: StepTimes) -> None:
        """So many of the steps that `stalls` was last asked for are done."""
        rounds, asked, total = len(times.total_s), self._asked, self.totals
        self._traffic.done(rounds)  # of others, that were cut off, all is lost
        self.owed_s -= self._pays_s * rounds
        total["delay_s"] += self._pays_s * rounds
        if times.stall_s is not None:
            total["wait_s"] += float(times.stall_s.sum()) - self._pays_s * rounds
        for name in ("query_bytes", "partial_bytes", "merge_bytes", "read_bytes"):
            total[name] += getattr(asked, name) * rounds
        for lender, card_s in zip(self._shares, asked.card_s, strict=True):
            self._charge(lender, card_s * rounds)
        for _, loan, tokens in self._sent:
            self._charge(loan.lender, tokens * self._written_s)
        total["sent_tokens"] += self._fresh
        total["moved_tokens"] += self._leaving
        self._landing += self._leaving
        for request, loan, landed in self.loans.land(self._landing, self.block):
            self._landing -= landed
            self._blocks.drop_first(request, landed)
            self._charge(loan.lender, landed * self._written_s)
            self.engine.changes += 1
        self._landing = min(self._landing, self.loans.moving)

    def _charge(self, lender: int, seconds: float) -> None:
        """A lender worked so long, for which steps of its own wait."""
        self.totals["card_s"] += seconds
        if (other := self._cards[lender]).engine.running.size:
            other.owed_s += seconds
            self.totals["charged_s"] += seconds

    def away(self, request: int) -> int:
        return self.loans.filled_of(request)

    def room(self, request: int) -> int:
        """Tokens of a request for which there is room on other cards."""
        return self.loans.room_of(request)

    def admitted(self, request: int) -> None:
        self._give_rooms_back(request)

    def apart(self, request: int) -> bool:
        return request in self.loans

    def admit(self, request: int, demand: Demand, total: int, cached: int, tokens: int) -> bool:
        rooms, free = self.room(request), self.allocator.free_slots
        if not rooms or self._needs(total - rooms) > free:
            return False
        if self.allocator.reserve(request, demand, cached + tokens):
            return True
        away = self._deal(request, tokens, cached)
        if not self.allocator.reserve(request, demand, cached + tokens - sum(away)):
            return False
        self._send(request, away)
        return True

    def grow(self, request: int, tokens: int) -> bool | None:
        if request not in self.loans:
            return None
        away = self._deal(request, tokens)
        if not self.allocator.grow(request, tokens - sum(away)):
            return False
        self._send(request, away)
        return True

    def _deal(self, request: int, tokens: int, found: int = 0) -> list[int]:
        """How many of the next tokens of a request each of its lenders keeps: those for which there
        is no room at home. found: tokens before them that may lie in what is free."""
        layout = self._layout
        room = self.allocator.free_slots - self.spare - int(layout.slots_of(found))
        return self.loans.deal(request, tokens - max(min(tokens, room // layout.parts), 0))

    def _send(self, request: int, away: list[int]) -> None:
        """So many tokens of a request are computed, and kept by each of its lenders."""
        for loan, sent in zip(self.loans[request], away, strict=True):
            loan.filled += sent
            self._sent.append((request, loan, sent))
        if sum(away):
            self._blocks.drop_first(request, 0)
        self._fresh += sum(away)

    def leave(self, request: int) -> int | None:
        return self._give_rooms_back(request) if request in self.loans else None

    def _give_rooms_back(self, request: int) -> int:
        """All that others keep for a request is gone; tokens of the rooms."""
        lenders = [self._cards[loan.lender] for loan in self.loans.pop(request, ())]
        # one that has failed has lost the room already
        return sum(lender.give_back(request) for lender in lenders if request in lender.lent)
