"""v1 on a card that keeps part of its requests' KV on other cards, and part of theirs.

A request runs on its home. Blocks of its KV lie there and on lenders, which compute local attention
over theirs (`policies.memory.distributed_attention`). A lender reserves room; the home fills it
with what it computes when its own memory is used up, or copies to it what it holds. Decoded tokens
stay at home. An end or a preemption gives all rooms back; nothing of such a request is found again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hwmodel.description.description import DescriptionError
from policies.allocators.allocator import Allocator, Demand
from policies.allocators.paged import PagedAllocator
from policies.engines.engine import Offered
from policies.engines.engine_v1 import EngineV1Spec
from policies.engines.scheduled_step import Chunk, Step
from policies.memory.distributed_attention import DistributedAttention, Part
from policies.memory.step import Efficiency, StepModel, StepTimes
from policies.requests.requests import FloatArray, IntArray
from policies.transfers.hosting_engine import HostingEngine


@dataclass(eq=False)
class Loan:
    """Room for tokens of a request on another card, `filled` from its start. `moving`: tokens that
    the home holds and copies there."""

    lender: int
    room: int = 0
    filled: int = 0
    moving: int = 0

    @property
    def open(self) -> int:
        """Tokens that it takes of those computed next."""
        return self.room - self.filled - self.moving


class LendingEngine(HostingEngine):
    """`card`: its number among `cards`, which all are of one model. `spare`: tokens that plans
    leave free on each."""

    def __init__(self, spec: EngineV1Spec, allocator: Allocator, offered: Offered) -> None:
        """Raises DescriptionError for what is not modelled."""
        super().__init__(spec, allocator, offered)
        if spec.admit_on != "input" or not isinstance(allocator, PagedAllocator):
            raise DescriptionError("cluster.lending: needs policy paged and engine.admit_on: input")
        self._paged = allocator
        self.loans: dict[int, list[Loan]] = {}
        """Of requests at home here."""
        self.lent: set[int] = set()
        """Requests of others with room here."""
        self._tick_s = self._now_s = 0.0
        self.owed_s = 0.0
        """What attention for others has taken of this card and its own steps have not waited."""
        self._parts: dict[int, Part] = {}
        self._fresh = self._asking = self._leaving = self._landing = 0
        self._sent: list[tuple[int, int]] = []
        """(lender, tokens) of those that a step computes and does not keep."""
        self.totals: dict[str, float] = defaultdict(float)
        """Bytes, seconds and tokens so far."""

    def join(
        self, card: int, cards: Sequence[LendingEngine], work: DistributedAttention, spare: int,
        step_tokens: int | None, first_s: float,
    ) -> None:  # fmt: skip
        """It is one of these from now on; loans are first planned at `first_s`."""
        self._tick_s = first_s
        self.card, self._cards, self._work, self.spare = card, cards, work, spare
        self._step_tokens = step_tokens

    @property
    def busy(self) -> bool:
        return super().busy and not self.blocked

    @property
    def holding(self) -> bool:
        return True  # others may lend, or give back what they were lent

    @property
    def holders(self) -> IntArray:
        return np.array([*self.lent], np.int64)

    @property
    def due_s(self) -> float:
        return self._tick_s if self.blocked else float("inf")

    def land(self, now_s: float) -> None:
        if now_s > self._now_s:
            self.blocked = False
        self._now_s = now_s

    def plans(self, at_s: float, next_s: float) -> None:
        """Loans are planned now, and then."""
        self._tick_s, self._now_s, self.blocked = next_s, at_s, False
        for request in [each for each in list(self.waiting)[1:] if each in self.loans]:
            self._give_rooms_back(request)

    @property
    def lacking(self) -> int:
        """Tokens that the first in line lacks, or those that run to grow."""
        wanted = self.spare - self.allocator.free_slots if self.running.size else 0
        if self.waiting and not self._partial and self.room_for_one():
            head = self.waiting[0]
            rooms = sum(loan.room for loan in self.loans.get(head, ()))
            wanted = self.total(head) + self.spare - rooms - self.allocator.free_slots
        return max(wanted - self._moving, 0)

    @property
    def lendable(self) -> list[tuple[int, int]]:
        """(tokens, request) that others could keep, the longest first: whole blocks of requests
        that decode, but for the last, and what the first in line will have beyond a step."""
        found = []
        for request in self._decoding().tolist():
            moving = sum(loan.moving for loan in self.loans.get(request, ()))
            whole = (int(self.allocator.stored[request]) - 1) // self.block * self.block
            found.append((whole - moving, request))
        if self.waiting and not self._partial:
            found.append((self.total(self.waiting[0]) - self.budget, self.waiting[0]))
        return sorted((each for each in found if each[0] > 0), reverse=True)

    def borrow(self, request: int, lender: int, tokens: int) -> bool:
        """The local manager there reserves room, and what is at home is copied to it; False if it
        has none."""
        if not self._cards[lender].lend(request, tokens):
            return False
        loans = self.loans.setdefault(request, [])
        loan = next((each for each in loans if each.lender == lender), None)
        if loan is None:
            loans.append(loan := Loan(lender))
        loan.room += tokens
        if request in self.running:
            loan.moving += tokens
        self.totals["loans"] += 1
        self.totals["lent_tokens"] += tokens
        return True

    def lend(self, request: int, tokens: int) -> bool:
        """Room for so many tokens of another card's request; False if there is none."""
        self.changes += 1
        if request in self.lent:
            return self.allocator.grow(request, tokens)
        if self.allocator.reserve(request, Demand(tokens, 0, self._predicted[request]), tokens):
            self.lent.add(request)
            return True
        return False

    def give_back(self, request: int) -> int:
        """Room of another's request is free again; its tokens."""
        self.lent.remove(request)
        self.changes += 1
        return self._paged.release_known(request, 0)

    def rounds(self, step: Step, limit: int) -> int:
        return 1 if self._moving else super().rounds(step, limit)

    def schedule(self) -> Step:
        self._parts, self._fresh, self._asking, self._sent = {}, 0, 0, []
        step = super().schedule()
        self.blocked = step.empty and not step.preempted and not self.running.size
        for request in step.decode.tolist() if self.loans else ():
            for loan, part in self._asked_of(request, 1):
                part.decoding += 1
                part.context += loan.filled
        return step

    def _asked_of(self, request: int, tokens: int) -> list[tuple[Loan, Part]]:
        """Loans in which KV of a request lies, of which so many tokens of it ask now."""
        found = [loan for loan in self.loans.get(request, ()) if loan.filled]
        self._asking += tokens if found else 0
        return [(loan, self._parts.setdefault(loan.lender, Part())) for loan in found]

    def stalls(
        self, times: StepTimes, chunks: Sequence[Chunk], steps: StepModel, efficiency: Efficiency
    ) -> FloatArray:
        """Seconds that each of the steps last scheduled waits: for lenders, for the link, and for
        attention that this card computes for others. Float64 (rounds,)."""
        busy = [self._cards[lender].running.size > 0 for lender in self._parts]
        asked = self._work.asks(list(self._parts.values()), busy, self._asking, steps, efficiency)
        pairs = sum(c.tokens * c.start + c.tokens * (c.tokens + 1) // 2 for c in chunks)
        stored = sum(chunk.start for chunk in chunks)
        local_s = times.attention_s + steps.attention_alone_s(0, pairs, stored, efficiency)
        waits: FloatArray = np.maximum(asked.path_s - local_s, 0.0) + asked.merge_s
        step_s = float(times.total_s[0] + waits[0])
        self._leaving, copied_s = self._copies(step_s, asked.link_s)
        if self._leaving:
            longer = (asked.link_s + copied_s) / step_s
            self.slower.append(max(longer - 1, 0.0))
        waits = np.maximum(waits, asked.link_s + copied_s - times.total_s)
        self._written_s = self._work.written_s(steps, efficiency)
        waits = waits + (self._fresh + self._leaving) * self._written_s
        self._asked, self._pays_s = asked, self.owed_s / len(waits)
        return waits + self._pays_s

    def _copies(self, step_s: float, link_s: float) -> tuple[int, float]:
        """(tokens copied beside a step, seconds of the link for them and for those computed): as
        many as it has time for, or as the options say."""
        fresh_s = self._work.copy_s(self._fresh)
        pending = self._moving - self._landing
        if not pending:
            return 0, fresh_s
        most = self._step_tokens
        if most is None:
            most = int(max(step_s - link_s - fresh_s, 0.0) / self._work.token_s) or 1
        copied = min(most, pending)
        return copied, self._work.copy_s(copied + self._fresh)

    def passed(self, times: StepTimes) -> None:
        """So many of the steps that `stalls` was last asked for are done."""
        rounds, asked, total = len(times.total_s), self._asked, self.totals
        self.owed_s -= self._pays_s * rounds
        total["delay_s"] += self._pays_s * rounds
        if times.stall_s is not None:
            total["wait_s"] += float(times.stall_s.sum()) - self._pays_s * rounds
        for name in ("query_bytes", "partial_bytes", "merge_bytes", "read_bytes"):
            total[name] += getattr(asked, name) * rounds
        for lender, card_s in zip(self._parts, asked.card_s, strict=True):
            self._charge(lender, card_s * rounds)
        for lender, tokens in self._sent:
            self._charge(lender, tokens * self._written_s)
        total["sent_tokens"] += self._fresh
        total["moved_tokens"] += self._leaving
        self._landing += self._leaving
        for request, loan in [(r, loan) for r, loans in self.loans.items() for loan in loans]:
            if landed := min(self._landing, loan.moving) // self.block * self.block:
                self._landing -= landed
                loan.moving -= landed
                loan.filled += landed
                self._paged.drop_first(request, landed)
                self._charge(loan.lender, landed * self._written_s)
                self.changes += 1
        self._landing = min(self._landing, self._moving)

    def _charge(self, lender: int, seconds: float) -> None:
        """A lender worked so long, for which steps of its own wait."""
        self.totals["card_s"] += seconds
        if (engine := self._cards[lender]).running.size:
            engine.owed_s += seconds
            self.totals["charged_s"] += seconds

    @property
    def _moving(self) -> int:
        """Tokens that wait to be copied to lenders, or are on their way."""
        return sum(loan.moving for loans in self.loans.values() for loan in loans)

    def _reserve(self, request: int, demand: Demand, total: int, cached: int, budget: int) -> bool:
        if super()._reserve(request, demand, total, cached, budget):
            self._give_rooms_back(request)
            return True
        rooms = sum(loan.room for loan in self.loans.get(request, ()))
        if not rooms or total - rooms > self.allocator.free_slots:
            return False
        return self.allocator.reserve(request, demand, cached + min(total - cached, budget))

    def _continue(self, chunks: list[Chunk], budget: int) -> int:
        request = int(self.running[-1])
        if request not in self.loans:
            return super()._continue(chunks, budget)
        loans, home = self.loans[request], int(self.allocator.stored[request])
        start, total = home + sum(loan.filled for loan in loans), self.total(request)
        tokens = min(total - start, budget)
        away: list[int] = []
        left = tokens - max(min(tokens, self.allocator.free_slots - self.spare), 0)
        for loan in loans:
            away.append(min(loan.open, left))
            left -= away[-1]
        if not self.allocator.grow(request, tokens - sum(away)):
            self.running = self.running[:-1]
            self._partial = False
            self._preempt(request)
            return 0
        for loan, part in self._asked_of(request, tokens):
            part.chunked += tokens
            part.stored += loan.filled
            part.pairs += tokens * loan.filled
        for loan, sent in zip(loans, away, strict=True):
            loan.filled += sent
            self._sent.append((loan.lender, sent))
        if sum(away):
            self._paged.drop_first(request, 0)
        self._fresh += sum(away)
        self._partial = start + tokens < total
        chunks.append(Chunk(request, home, tokens, not self._partial))
        return tokens

    def _release(self, request: int) -> int:
        if request not in self.loans:
            return super()._release(request)
        return self._give_rooms_back(request) + self._paged.release_known(request, 0)

    def _give_rooms_back(self, request: int) -> int:
        """All that others keep for a request is gone; tokens of the rooms."""
        loans = self.loans.pop(request, ())
        return sum(self._cards[loan.lender].give_back(request) for loan in loans)
